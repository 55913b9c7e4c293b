//! Interfaces, addresses and routes by netlink.

use std::{fs, net::IpAddr, net::Ipv4Addr};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tessera_harness::host::{Link, NetworkConfiguration, Route};

/// Opens the netlink socket of this network namespace.
pub fn connect() -> Result<Handle> {
    let (connection, handle, _) = rtnetlink::new_connection().context("cannot open a netlink socket")?;
    tokio::spawn(connection);
    Ok(handle)
}

pub async fn bring_up_loopback(handle: &Handle) -> Result<()> {
    bring_up(handle, "lo").await.map(drop)
}

pub async fn set_up(handle: &Handle, configuration: &NetworkConfiguration) -> Result<()> {
    for link in &configuration.links {
        add_link(handle, link).await.with_context(|| format!("cannot make the link {}", link.name))?;
    }
    for (card, address) in &configuration.addresses {
        let index = bring_up(handle, card).await?;
        handle
            .address()
            .add(index, IpAddr::V4(address.address), address.prefix)
            .execute()
            .await
            .with_context(|| format!("cannot give {card} the address {}", address.address))?;
    }
    if configuration.forwarding {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot switch forwarding on")?;
    }
    for route in &configuration.routes {
        add_route(handle, route)
            .await
            .with_context(|| format!("cannot add the route by {}", route.gateway))?;
    }
    Ok(())
}

async fn add_link(handle: &Handle, link: &Link) -> Result<()> {
    // Created under a temporary name, since the peer's name may exist here too, then moved and renamed at once.
    let passing = format!("{}-p", link.name);
    handle.link().add(LinkVeth::new(&link.name, &passing).build()).execute().await?;
    let index = index_of(handle, &passing).await?;
    let moved = LinkUnspec::new_with_index(index).name(&link.peer).setns_by_pid(link.process).build();
    handle.link().set(moved).execute().await?;
    Ok(())
}

async fn add_route(handle: &Handle, route: &Route) -> Result<()> {
    let mut message = RouteMessageBuilder::<Ipv4Addr>::new().gateway(route.gateway);
    if let Some(destination) = route.destination {
        message = message.destination_prefix(destination.address, destination.prefix);
    }
    handle.route().add(message.build()).execute().await?;
    Ok(())
}

async fn bring_up(handle: &Handle, card: &str) -> Result<u32> {
    let index = index_of(handle, card).await?;
    handle
        .link()
        .set(LinkUnspec::new_with_index(index).up().build())
        .execute()
        .await
        .with_context(|| format!("cannot bring {card} up"))?;
    Ok(index)
}

async fn index_of(handle: &Handle, card: &str) -> Result<u32> {
    let mut links = handle.link().get().match_name(card).execute();
    let link = links.try_next().await.with_context(|| format!("no network card {card}"))?;
    Ok(link.with_context(|| format!("no network card {card}"))?.header.index)
}
