//! From NVIDIA's DRA driver. Paths of its settings: its chart, release 0.5
//! (<https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/main/deployments/helm/dra-driver-nvidia-gpu/values.yaml>).

use serde_json::{Value, json};
use tessera_cluster::Key;

use super::release::{self, Charts, Release};
use super::steps::{self, Moving};
use super::{Draft, Known, MigrateError, Plan, values, workloads};

/// Its DRA driver name, adopted by ours so claims stay unchanged.
const DRIVER: &str = "gpu.nvidia.com";

const CHARTS: Charts = Charts {
    names: &["dra-driver-nvidia-gpu", "nvidia-dra-driver-gpu", "nvidia-dra-driver"],
    image: "dra-driver",
    container: "gpus",
};

/// Makes the plan.
pub fn plan(known: Known<'_>) -> Result<Plan, MigrateError> {
    let release =
        release::find(known.foreign, &CHARTS, known.namespace)?.ok_or_else(|| MigrateError::Nothing {
            driver: "NVIDIA's DRA driver",
            charts: CHARTS.names.join(" or "),
            also: "DaemonSet with its image",
        })?;
    let mut draft = Draft { found: vec![release.told()], ..Draft::default() };
    draft.values.set(&["driverName"], DRIVER);
    values::driver_root(&mut draft, &release, "nvidiaDriverRoot");
    values::of_pods(&mut draft, &release, "kubeletPlugin.");
    extended_resource(known, &mut draft);
    gates(&release, &mut draft)?;
    directories(&release, &mut draft);
    if release.is_on("kubeletPlugin.networkPolicy.enabled") {
        draft.values.set(&["networkPolicy", "enabled"], true);
        draft.values.carried("kubeletPlugin.networkPolicy.enabled");
    }
    if let Some(level) = release.at("logVerbosity").and_then(number).filter(|level| *level >= 6) {
        let ours = if level >= 7 { "trace" } else { "debug" };
        draft.values.set(&["kubeletPlugin", "logLevel"], ours);
    }
    draft.values.carried("logVerbosity");
    // Said where this driver refuses to start without them; here they have no meaning.
    draft.values.carried("gpuResourcesEnabledOverride");
    draft.values.carried("resources.gpus");
    let has_domains = release.is_on("resources.computeDomains.enabled");
    if has_domains {
        draft.note("resources.computeDomains", "ComputeDomains stay with NVIDIA's chart, with \
                                                resources.gpus.enabled=false; uninstall it if they are not used. \
                                                Until the last step they are not served on migrated nodes");
    }
    draft.values.carried("resources.computeDomains");
    draft.values.carried("controller");
    draft.note(
        "taints of sick cards",
        "the same for XIDs and lost cards; other faults are gpu.nvidia.com/unhealthy with the fault as value; there \
         is no gpu.nvidia.com/unmonitored (docs/coming-from-nvidia.md)",
    );
    values::rest(&mut draft, &release);
    let moving = Moving {
        driver: DRIVER,
        label_path: "kubeletPlugin.nodeSelector",
        release: &release,
        classes: classes(known),
        end: match has_domains {
            true => steps::End::Upgrade("resources.gpus.enabled=false"),
            false => steps::End::Uninstall,
        },
    };
    let steps = steps::of_release(known, &moving, &draft);
    Ok(draft.plan("NVIDIA's DRA driver", workloads::of_claims(known), steps))
}

/// Numbers are texts in its values.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Its class of cards stands for `nvidia.com/gpu` if the API server supports extended resource names; then ours does too.
fn extended_resource(known: Known<'_>, draft: &mut Draft) {
    let class = known.objects.classes.get(&Key::cluster(DRIVER));
    let Some(class) = class else { return };
    let named = class.spec.as_ref().and_then(|spec| spec.extended_resource_name.as_deref());
    // On by default under its name.
    draft.values.set(&["extendedResourceNames", "enabled"], named.is_some());
    if let Some(name) = named {
        draft.values.set(&["extendedResourceNames", "gpu"], name);
    }
}

/// Its classes in the cluster, created by our chart under the same names.
fn classes(known: Known<'_>) -> Vec<&str> {
    let ours = [DRIVER, "mig.nvidia.com"];
    let there = |name: &&str| known.objects.classes.contains_key(&Key::cluster(*name));
    ours.into_iter().filter(there).collect()
}

fn gates(release: &Release, draft: &mut Draft) -> Result<(), MigrateError> {
    let gate = |name: &str| release.is_on(&format!("featureGates.{name}"));
    if gate("MPSSupport") {
        draft.values.set(&["sharing", "mps", "enabled"], true);
    }
    draft.values.carried("featureGates.MPSSupport");
    draft.values.carried("featureGates.TimeSlicingSettings");
    let shares = release.at("consumableShares").map(|value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let shares =
        shares.filter(|_| gate("ConsumableShares")).filter(|text| !matches!(text.as_str(), "" | "disabled"));
    let mut offer = json!({});
    if !gate("DynamicMIG") {
        // Without DynamicMIG, NVIDIA's driver publishes cards and existing partitions; ours would create others, and classes
        // naming the driver alone would match them.
        offer["partitioning"] = json!({ "mode": "None" });
        draft.note(
            "partitions",
            "none are made on demand, as with NVIDIA's driver without DynamicMIG: for them, \
                                  remove offer.partitioning from the GpuPool",
        );
    }
    draft.values.carried("featureGates.DynamicMIG");
    if let Some(shares) = shares {
        let consumable = match shares.as_str() {
            "unlimited" => Some(json!({ "mode": "Unlimited" })),
            "memory" => Some(json!({ "mode": "Memory" })),
            number => {
                let count = number.parse::<u32>().ok().filter(|count| (2..=1024).contains(count));
                count.map(|count| json!({ "mode": "Shares", "shares": count }))
            }
        };
        match consumable {
            Some(consumable) => {
                if consumable["mode"] == "Shares" {
                    draft.values.set(&["sharing", "consumableShares", "enabled"], true);
                }
                offer["sharing"] = json!({ "consumableShares": consumable });
                draft.note(
                    "consumableShares",
                    "as with NVIDIA's driver, programs are not limited to their share; \
                                                shares by MPS have enforced limits (docs/sharing.md)",
                );
            }
            None => draft.note(
                "consumableShares",
                format!("{shares} is not unlimited, memory, or 2 to 1024 shares: each device gets one claim"),
            ),
        }
    }
    draft.values.carried("consumableShares");
    draft.values.carried("featureGates.ConsumableShares");
    if offer.as_object().is_some_and(|offer| !offer.is_empty()) {
        draft.pool("cards", json!({ "offer": offer }))?;
    }
    Ok(())
}

fn directories(release: &Release, draft: &mut Draft) {
    for (path, below) in [
        ("kubeletPlugin.kubeletPluginsDirectoryPath", "/plugins"),
        ("kubeletPlugin.kubeletRegistrarDirectoryPath", "/plugins_registry"),
    ] {
        let Some(directory) = release.text(path) else { continue };
        match directory.trim_end_matches('/').strip_suffix(below) {
            Some("/var/lib/kubelet") => {}
            Some(kubelet) if !kubelet.is_empty() => draft.values.set(&["kubeletDirectory"], kubelet),
            _ => draft.note(
                path,
                format!("{directory} is not {below} of a kubelet's directory: set kubeletDirectory by hand"),
            ),
        }
        draft.values.carried(path);
    }
}
