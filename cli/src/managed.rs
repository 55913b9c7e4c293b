//! Managed cards as they are to the controller: free, where no claim holds them.

use tessera_api::managed;
use tessera_cluster::Objects;
use tessera_cluster::subject::Subject;

/// Whether the controller may allocate for the pod or claim: kube-scheduler alone makes claims for extended resources.
pub fn may_serve(subject: &Subject) -> bool {
    subject.claims.iter().all(|wanted| wanted.extended_resources.is_empty())
}

/// The objects without the taint of managed cards, a barrier for kube-scheduler; `None` if no device has the taint.
pub fn of_controller(mut objects: Objects) -> Option<Objects> {
    let mut has_managed = false;
    let slices = objects.slices.values_mut();
    for device in slices.flat_map(|slice| slice.spec.devices.iter_mut().flatten()) {
        if let Some(taints) = &mut device.taints {
            let before = taints.len();
            taints.retain(|taint| taint.key != managed::TAINT_KEY);
            has_managed |= taints.len() < before;
        }
    }
    has_managed.then_some(objects)
}
