//! Versions of the control plane's parts: whether Tessera works with them, whether they belong together, and their faults.

use std::collections::BTreeMap;

use tessera_api::kubernetes::is_newer_than_known;

use super::{Facts, Finding, Live, error, warning};

/// The oldest supported version, and the first with everything.
const OLDEST: (u32, u32) = (1, 35);
const FULL: (u32, u32) = (1, 36);

/// The first version whose kube-scheduler watches DeviceTaintRules by default.
const RULES: (u32, u32) = (1, 37);

/// A fault of kube-scheduler with devices with counters, such as ours.
struct Fault {
    what: &'static str,
    /// Gates without an effect of the fault when off.
    gates: &'static [&'static str],
    /// Of each affected minor version the first patch without the fault; `None` where there is none.
    mended: &'static [(u32, Option<u32>)],
    /// Whether only pools of one name from several drivers are affected.
    needs_twins: bool,
}

/// Faults of kube-scheduler, from the release notes of Kubernetes 1.35.6 and 1.36.2 to 1.36.4.
const FAULTS: [Fault; 4] = [
    Fault {
        what: "gives a whole card, or partitions of it, to one pod while others hold shares of it (kubernetes/kubernetes#139034)",
        gates: &["DRAPartitionableDevices", "DRAConsumableCapacity"],
        mended: &[(35, None), (36, Some(2))],
        needs_twins: false,
    },
    Fault {
        what: "crashes on a claim with allocationMode: All and then schedules nothing (kubernetes/kubernetes#138882)",
        gates: &["DRAPartitionableDevices"],
        mended: &[(35, Some(6)), (36, Some(2))],
        needs_twins: false,
    },
    Fault {
        what: "lets pods wait although partitions and shares are free (kubernetes/kubernetes#140663)",
        gates: &["DRAPartitionableDevices"],
        mended: &[(36, Some(3))],
        needs_twins: false,
    },
    Fault {
        what: "counts devices against the counters of another driver's pool of the same name \
               (kubernetes/kubernetes#140434)",
        gates: &["DRAPartitionableDevices"],
        mended: &[(36, Some(4))],
        needs_twins: true,
    },
];

/// Findings about versions.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(live) = facts.live else { return Vec::new() };
    let Some(version) = live.version.as_deref() else { return Vec::new() };
    let twins = facts.published.twins();
    let mut found: Vec<Finding> = of_api_server(version).into_iter().collect();
    let schedulers: BTreeMap<&str, &str> =
        live.schedulers.iter().map(|(pod, version)| (version.as_str(), pod.as_str())).collect();
    found.extend(schedulers.iter().filter_map(|(scheduler, pod)| apart(version, scheduler, pod)));
    match schedulers.is_empty() {
        // A scheduler not run as a pod is taken to have the API server's version.
        true => found.extend(faults(version, live, &twins)),
        false => found.extend(schedulers.keys().filter_map(|version| faults(version, live, &twins))),
    }
    found
}

fn of_api_server(version: &str) -> Option<Finding> {
    let about = "API server";
    match parsed(version)? {
        known if known < OLDEST => Some(error(
            about,
            format!("{version} is too old: the driver needs Kubernetes 1.35"),
            "upgrade the control plane",
        )),
        known if known < FULL => Some(warning(
            about,
            format!("{version} is too old for steering and managed pools: they need Kubernetes 1.36"),
            "upgrade the control plane, or leave pools Native",
        )),
        _ if is_newer_than_known(version) => Some(warning(
            about,
            format!(
                "{version} is newer than the versions tested with this release of Tessera: it is treated as the \
                 newest known one"
            ),
            "look for a newer release of Tessera; kubectl gpu explain, allocate and simulate may differ from \
             kube-scheduler",
        )),
        _ => None,
    }
}

/// A kube-scheduler of another minor version than the API server has.
fn apart(api_server: &str, scheduler: &str, pod: &str) -> Option<Finding> {
    let (server, own) = (parsed(api_server)?, parsed(scheduler)?);
    let versions = format!("{pod} is {scheduler}, the API server {api_server}");
    if own > server {
        let waits = match server < RULES && own >= RULES {
            true => "it waits for DeviceTaintRules, not served by this API server, and schedules nothing",
            false => "Kubernetes does not support one newer than the API server",
        };
        let todo = "upgrade the API server first; until then use a kube-scheduler of its version";
        return Some(error("kube-scheduler", format!("{versions}: {waits}"), todo));
    }
    let rules = match own < RULES && server >= RULES {
        true => "it ignores DeviceTaintRules unless its feature gate DRADeviceTaintRules is on, and ",
        false => "",
    };
    let what = format!(
        "{versions}: {rules}kubectl gpu explain, allocate and simulate answer for the API server's version"
    );
    (own < server).then(|| warning("kube-scheduler", what, "upgrade kube-scheduler, too"))
}

/// Faults of kube-scheduler of this version. `twins`: names of pools used by several drivers.
fn faults(version: &str, live: &Live, twins: &[&str]) -> Option<Finding> {
    let (_, minor) = parsed(version)?;
    let patch = version.split('.').nth(2)?;
    let end = patch.find(|c: char| !c.is_ascii_digit()).unwrap_or(patch.len());
    let patch: u32 = patch[..end].parse().ok()?;
    let gates = live.gates.as_ref();
    // They are on by default since 1.36.
    let is_on = |gate: &&str| gates.and_then(|gates| gates.get(*gate)).copied().unwrap_or(minor >= FULL.1);
    let has = |fault: &&Fault| {
        let mended = fault.mended.iter().find(|(of, _)| *of == minor);
        mended.is_some_and(|(_, mended)| mended.is_none_or(|mended| patch < mended))
            && fault.gates.iter().all(is_on)
            && (!fault.needs_twins || !twins.is_empty())
    };
    let shown: Vec<&Fault> = FAULTS.iter().filter(has).collect();
    let what: Vec<&str> = shown.iter().map(|fault| fault.what).collect();
    let names = match shown.iter().any(|fault| fault.needs_twins) {
        true => format!(", as of {}", twins.join(", ")),
        false => String::new(),
    };
    let remedy = match minor {
        35 => {
            "upgrade to Kubernetes 1.36.4 or later; until then offer shares in a GpuPool of their own, without whole cards and partitions"
        }
        _ => "upgrade to Kubernetes 1.36.4 or later",
    };
    (!what.is_empty())
        .then(|| error("kube-scheduler", format!("version {version} {}{names}", what.join("; it ")), remedy))
}

/// `v1.36.3` as (1, 36).
pub(super) fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use tessera_cluster::Objects;

    use super::*;
    use crate::doctor::published::Published;

    fn of(version: &str) -> Live {
        Live { version: Some(version.to_owned()), ..Live::default() }
    }

    fn told(live: &Live, published: &Published) -> Vec<String> {
        let facts = Facts {
            objects: &Objects::default(),
            published,
            pools: None,
            live: Some(live),
            driver: "gpu.tessera.dev",
            node: None,
            now: Timestamp::UNIX_EPOCH,
        };
        let told = |finding: Finding| format!("{:?} {}: {}", finding.severity, finding.about, finding.what);
        findings(&facts).into_iter().map(told).collect()
    }

    #[test]
    fn each_version_is_told_what_it_lacks() {
        for (version, says) in [
            ("v1.34.7+k3s1", "Error API server: v1.34.7+k3s1 is too old: the driver needs Kubernetes 1.35"),
            ("v1.35.9", "Warning API server: v1.35.9 is too old for steering and managed pools"),
            ("v1.36.1-gke.1200", "Error kube-scheduler: version v1.36.1-gke.1200 gives a whole card"),
            ("v1.36.2", "Error kube-scheduler: version v1.36.2 lets pods wait"),
            ("v1.38.0", "Warning API server: v1.38.0 is newer than the versions tested"),
        ] {
            let told = told(&of(version), &Published::default());
            assert!(told.len() == 1 && told[0].starts_with(says), "{says}: {told:?}");
        }
        for version in ["v1.36.3", "v1.36.6", "v1.37.2-gke.1", "1.37", "none"] {
            assert_eq!(told(&of(version), &Published::default()), [""; 0], "{version}");
        }
        assert_eq!(
            told(&Live::default(), &Published::default()),
            [""; 0],
            "what may not be read is not wrong"
        );
    }

    #[test]
    fn faults_of_kube_scheduler_show_with_the_gates_that_they_need() {
        let with = |version: &str, on: bool| {
            let gates = FAULTS[0].gates.iter().map(|gate| ((*gate).to_owned(), on)).collect();
            faults(version, &Live { gates: Some(gates), ..Live::default() }, &[]).map(|finding| finding.what)
        };
        assert!(
            with("v1.35.5", true)
                .unwrap()
                .contains("shares of it (kubernetes/kubernetes#139034); it crashes")
        );
        assert!(!with("v1.35.6", true).unwrap().contains("138882"));
        assert_eq!(
            [with("v1.35.5", false), with("v1.36.0", false), with("v1.36.3", true)],
            [None, None, None]
        );
        let by_default = |version: &str| faults(version, &Live::default(), &[]);
        assert!(
            by_default("v1.35.5").is_none()
                && by_default("v1.36.0").is_some()
                && by_default("1.36").is_none()
        );
    }

    #[test]
    fn two_drivers_with_pools_of_one_name_need_1_36_4() {
        let slice = |driver: &str, pool: &str, has_counters: bool| {
            let counters = [serde_json::json!({ "name": "c", "counters": { "m": { "value": "1" } } })];
            let counters = if has_counters { &counters[..] } else { &[] };
            let slice = serde_json::json!({ "metadata": { "name": driver }, "spec": { "driver": driver, "nodeName": "n",
                "pool": { "name": pool, "generation": 1, "resourceSliceCount": 1 }, "sharedCounters": counters } });
            serde_json::from_value(slice).unwrap()
        };
        let mut published = Published::default();
        for (driver, pool, has_counters) in
            [("a.example.com", "n", true), ("b.example.com", "n", false), ("c.example.com", "o", true)]
        {
            published.add(&slice(driver, pool, has_counters));
        }
        assert_eq!(told(&of("v1.36.3"), &published), [""; 0], "one of the two has no counters");
        published.add(&slice("b.example.com", "n", true));
        let found = told(&of("v1.36.3"), &published);
        assert!(found.len() == 1 && found[0].ends_with("#140434), as of n"), "{found:?}");
        assert_eq!(told(&of("v1.36.4"), &published), [""; 0]);
        assert_eq!(told(&of("v1.37.0"), &published), [""; 0]);
    }

    #[test]
    fn a_kube_scheduler_of_another_version_is_told() {
        let with = |api_server: &str, schedulers: &[(&str, &str)]| {
            let schedulers =
                schedulers.iter().map(|(pod, of)| ((*pod).to_owned(), (*of).to_owned())).collect();
            told(&Live { schedulers, ..of(api_server) }, &Published::default())
        };
        assert_eq!(with("v1.37.2", &[("a", "v1.37.0"), ("b", "v1.37.2")]), [""; 0]);
        let [older] = &with("v1.37.2", &[("a", "v1.37.2"), ("b", "v1.36.3")])[..] else { panic!() };
        assert!(
            older.starts_with("Warning kube-scheduler: b is v1.36.3, the API server v1.37.2: it ignores"),
            "{older}"
        );
        let [newer] = &with("v1.36.6", &[("a", "v1.37.2")])[..] else { panic!() };
        assert!(
            newer.starts_with("Error")
                && newer.ends_with("not served by this API server, and schedules nothing"),
            "{newer}"
        );
        // The faults are kube-scheduler's.
        let faulty = with("v1.37.2", &[("a", "v1.36.2")]);
        assert!(faulty.len() == 2 && faulty[1].contains("version v1.36.2 lets pods wait"), "{faulty:?}");
    }
}
