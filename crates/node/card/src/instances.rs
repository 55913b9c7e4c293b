use tessera_nvml::{GpuInstance, GpuInstanceProfile};

use tessera_journal::PartitionChange;

/// Whether an instance was made by the change, possibly just before an interruption. The driver reuses ids, and the
/// UUID of an instance at the same place: only both together distinguish the instance from one made by somebody else
/// since.
#[must_use]
pub fn is_of_change(instance: &GpuInstance, change: &PartitionChange) -> bool {
    let is_it = match &change.made {
        None => !change.present.contains(&instance.id),
        Some(made) => {
            let computes = &instance.compute_instances;
            let is_same = |uuid: Option<&str>| uuid.is_none_or(|uuid| uuid == made.uuid);
            instance.id == made.gpu_instance
                && (computes.is_empty() || computes.iter().any(|compute| is_same(compute.uuid.as_deref())))
        }
    };
    is_it && instance.profile_id == change.profile_id && instance.placement == change.placement
}

/// GPU instances for an error: `GPU instance 3 (1g.10gb at 6, without compute instance)`.
#[must_use]
pub fn describe(instances: &[&GpuInstance], profiles: &[GpuInstanceProfile]) -> String {
    let one = |instance: &&GpuInstance| {
        let profile = profiles.iter().find(|profile| profile.id == instance.profile_id);
        let name =
            profile.map_or_else(|| format!("profile {}", instance.profile_id), |known| known.name.clone());
        let empty = if instance.compute_instances.is_empty() { ", without compute instance" } else { "" };
        format!("GPU instance {} ({name} at {}{empty})", instance.id, instance.placement.start)
    };
    instances.iter().map(one).collect::<Vec<_>>().join(", ")
}
