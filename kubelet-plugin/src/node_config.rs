//! What this node offers: read from a file with configurations by name, and a label of the node that selects one.

mod source;

use std::{sync::Arc, time::Duration};

use kube::Client;
use tessera_api::Offer;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use tessera_kube_util::node_label::{self, Labels};

pub use source::{NodeConfigOptions, SourceError};

/// How often to look at file and label when no change of the label is reported. The kubelet brings a changed
/// ConfigMap within about a minute, so a shorter interval would gain little.
const INTERVAL: Duration = Duration::from_secs(30);
/// The same until a configuration is known.
const FIRST_INTERVAL: Duration = Duration::from_secs(2);

/// Follows the configuration until `shutdown`. If file or label can't be read, the last one stays; until the first
/// success nothing is known, and nothing new must be published. `labels` reports when it is worth looking at once.
pub async fn follow(
    options: NodeConfigOptions,
    client: Client,
    node_name: String,
    mut labels: Labels,
    sender: watch::Sender<Option<Arc<Offer>>>,
    shutdown: CancellationToken,
) {
    let mut told = String::new();
    loop {
        match source::wanted(&options, &client, &node_name).await {
            Ok(config) => {
                if !told.is_empty() {
                    tracing::info!("what this node offers can be read again");
                    told.clear();
                }
                sender.send_if_modified(|known| {
                    let is_new = known.as_deref() != Some(&config);
                    if is_new {
                        tracing::info!(?config, "what this node offers");
                        *known = Some(Arc::new(config));
                    }
                    is_new
                });
            }
            Err(error) => {
                let message = error.to_string();
                if told != message {
                    let kept = if sender.borrow().is_some() {
                        "it stays as it was"
                    } else {
                        "nothing is published yet"
                    };
                    tracing::error!(error = message, "cannot tell what this node offers: {kept}");
                    told = message;
                }
            }
        }
        if options.file.is_none() {
            // Nothing will change. A part that ends by itself would end the process.
            return shutdown.cancelled().await;
        }
        let pause = if sender.borrow().is_some() { INTERVAL } else { FIRST_INTERVAL };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = node_label::changed(&mut labels) => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
