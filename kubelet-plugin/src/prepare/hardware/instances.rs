use tessera_nvml::{GpuInstance, GpuInstanceProfile};

/// GPU instances for an error: `GPU instance 3 (1g.10gb at 6, without compute instance)`.
pub(super) fn describe(instances: &[&GpuInstance], profiles: &[GpuInstanceProfile]) -> String {
    let one = |instance: &&GpuInstance| {
        let profile = profiles.iter().find(|profile| profile.id == instance.profile_id);
        let name =
            profile.map_or_else(|| format!("profile {}", instance.profile_id), |known| known.name.clone());
        let empty = if instance.compute_instances.is_empty() { ", without compute instance" } else { "" };
        format!("GPU instance {} ({name} at {}{empty})", instance.id, instance.placement.start)
    };
    instances.iter().map(one).collect::<Vec<_>>().join(", ")
}
