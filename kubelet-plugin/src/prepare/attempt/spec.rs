//! Step 9: a claim's CDI spec.

use std::sync::{Arc, Once};

use tessera_journal::{ClaimDevice, ClaimRecord, Journal};

use super::metadata::write_metadata;
use crate::cdi::{self, ClaimSpecDevice, DriverFiles, Roots};
use crate::prepare::cards::Worker;
use crate::prepare::{PrepareError, PrepareOptions};

impl Worker {
    /// Writes the CDI spec of a record's claim.
    pub async fn write_spec(
        &self,
        record: &ClaimRecord,
        files: Arc<DriverFiles>,
    ) -> Result<(), PrepareError> {
        let (options, record) = (self.options.clone(), record.clone());
        let published = self.published.borrow().clone();
        let write = move |_: &Journal, cdi: &cdi::Directory| {
            let spec = spec(cdi, &options, &record, &files)?;
            write_metadata(cdi, &record, published.as_deref())?;
            Ok::<_, PrepareError>(cdi.write(&record.uid, &spec)?)
        };
        self.disk(write).await
    }
}

/// A record's CDI spec, after making its device nodes missing on the host. Blocks for the file system.
pub(in crate::prepare) fn spec(
    cdi: &cdi::Directory,
    options: &PrepareOptions,
    record: &ClaimRecord,
    files: &DriverFiles,
) -> Result<cdi::Spec, PrepareError> {
    let roots = &options.roots;
    let devices = spec_devices(record, roots)?;
    let files = files.present(roots);
    let spec = || cdi::claim_spec(cdi.vendor(), roots, &devices, &files, &options.other_drivers);
    complete_host(roots, &spec());
    // Built again to include the host paths of nodes made just now.
    Ok(spec())
}

/// Makes the spec's device nodes missing on the host. Failures, as in a plugin without privileges, are logged once: most
/// containers do without. Blocks for the file system.
fn complete_host(roots: &Roots, spec: &cdi::Spec) {
    static TOLD: Once = Once::new();
    if let Err(error) = cdi::complete_host_nodes(roots, spec) {
        TOLD.call_once(|| {
            tracing::warn!(%error,
                "the node lacks device nodes, or links to them in /dev/char: pods with hostUsers: false do not start without \
                 the nodes, and where systemd has the containers' cgroups `systemctl daemon-reload` takes devices without \
                 links from running pods. Let the plugin make them (chart value deviceAccess: privileged), or run \
                 `nvidia-ctk system create-dev-char-symlinks --create-all` on the node at each boot");
        });
    }
}

/// A record's devices in the form the CDI spec needs. Blocks for file reads.
pub(in crate::prepare) fn spec_devices(
    record: &ClaimRecord,
    roots: &Roots,
) -> Result<Vec<ClaimSpecDevice>, PrepareError> {
    let device = |device: &ClaimDevice| {
        let mut spec = ClaimSpecDevice {
            name: cdi::device_name(&record.uid, &device.device, device.share_id.as_deref()),
            device: device.device.clone(),
            card: device.card,
            minor: device.minor,
            uuid: device.card_uuid.clone(),
            partition_nodes: None,
            mps: device.mps.clone().filter(|_| !device.admin_access),
        };
        let Some(partition) = &device.partition else { return Ok(spec) };
        let instances = partition.instances.as_ref().ok_or_else(|| PrepareError::NoPartition {
            device: device.device.clone(),
            uuid: device.card_uuid.clone(),
            note: "; the record of the claim does not say which it is",
        })?;
        let nodes =
            cdi::partition_nodes(roots, device.minor, instances.gpu_instance, instances.compute_instance);
        let nodes = nodes.map_err(|error| PrepareError::Capability {
            device: device.device.clone(),
            path: error.path.display().to_string(),
            reason: error.reason,
        })?;
        spec.uuid.clone_from(&instances.uuid);
        spec.partition_nodes = Some(nodes);
        Ok(spec)
    };
    record.devices.iter().map(device).collect()
}
