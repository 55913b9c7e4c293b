//! The pods of a job.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, HostPathVolumeSource,
    PersistentVolumeClaimVolumeSource, PodResourceClaim, PodSecurityContext, PodSpec, PodTemplateSpec,
    ResourceClaim, ResourceRequirements, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tessera_api::gang::{OPT_IN_LABEL, OPT_IN_VALUE};

use super::environment::{self, KEY_FOLDER};
use super::{MANAGED_BY, MANAGED_BY_LABEL, PORT, claims, has_steps};
use crate::job::{Job, Program};
use crate::mount::Mount;

/// Key of the script in its ConfigMap, and name of its file in the pod.
pub const SCRIPT_KEY: &str = "script";

/// The container of the program.
pub const MAIN: &str = "main";

/// Folder of the programs brought by the init container.
const TOOLS: &str = "/gpu-run";

/// Folder of the script.
const SCRIPT_FOLDER: &str = "/gpu-run-script";

/// The template of the Job's pods.
pub fn template(job: &Job) -> PodTemplateSpec {
    let mut labels = BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())]);
    if has_steps(job) {
        labels.insert(OPT_IN_LABEL.to_owned(), OPT_IN_VALUE.to_owned());
    }
    PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
        spec: Some(specification(job)),
    }
}

fn specification(job: &Job) -> PodSpec {
    let has_gpus = job.all_cards || !job.gpus.is_empty();
    let (mut volumes, mut mounts) = own_volumes(job);
    volumes.extend(job.defaults.volumes.clone());
    mounts.extend(job.defaults.volume_mounts.clone());
    for (index, mount) in job.mounts.iter().enumerate() {
        let (volume, mount) = mounted(job, index, mount);
        volumes.extend(volume);
        mounts.push(mount);
    }
    let main = Container {
        name: MAIN.to_owned(),
        image: Some(job.image.clone()),
        command: Some(command(job)),
        env: Some(environment::variables(job)),
        ports: has_steps(job)
            .then(|| vec![ContainerPort { container_port: PORT, ..ContainerPort::default() }]),
        resources: resources(job, has_gpus),
        volume_mounts: Some(mounts),
        working_dir: job.directory.clone(),
        ..Container::default()
    };
    let tools = Container {
        name: "gpu-run".to_owned(),
        image: Some(job.tools_image.clone()),
        // The image's program, whatever its path.
        args: Some(vec!["install".to_owned(), TOOLS.to_owned()]),
        volume_mounts: Some(vec![mount(TOOLS_VOLUME, TOOLS, false)]),
        ..Container::default()
    };
    PodSpec {
        active_deadline_seconds: job.seconds.and_then(|seconds| seconds.try_into().ok()),
        containers: vec![main],
        init_containers: Some(vec![tools]),
        node_selector: (!job.labels.is_empty()).then(|| job.labels.clone()),
        priority_class_name: job.priority_class.clone(),
        resource_claims: has_gpus.then(|| {
            vec![PodResourceClaim {
                name: claims::CLAIM.to_owned(),
                resource_claim_template_name: Some(job.name.clone()),
                ..PodResourceClaim::default()
            }]
        }),
        restart_policy: Some("Never".to_owned()),
        security_context: job.defaults.user.map(|(user, group)| PodSecurityContext {
            run_as_user: Some(user),
            run_as_group: group,
            ..PodSecurityContext::default()
        }),
        subdomain: has_steps(job).then(|| job.name.clone()),
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

/// A script runs on the first pod, a command in every task. The other pods serve the steps of the first.
fn command(job: &Job) -> Vec<String> {
    let mut words = [&format!("{TOOLS}/bin/gpu-run"), "host", "--"].map(str::to_owned).to_vec();
    match &job.program {
        Program::Script { arguments, .. } => {
            words.push(format!("{SCRIPT_FOLDER}/{SCRIPT_KEY}"));
            words.extend(arguments.clone());
        }
        Program::Command(command) => {
            words.push(format!("{TOOLS}/bin/srun"));
            words.extend(command.clone());
        }
    }
    // Kubernetes would expand $(NAME).
    words.into_iter().map(|word| word.replace("$(", "$$(")).collect()
}

fn resources(job: &Job, has_gpus: bool) -> Option<ResourceRequirements> {
    let memory = job.memory.map(|memory| ("memory".to_owned(), Quantity(memory.to_string())));
    let cpus = job.cpus.map(|cpus| ("cpu".to_owned(), Quantity(cpus.to_string())));
    let requests: BTreeMap<String, Quantity> = cpus.into_iter().chain(memory.clone()).collect();
    let claim = ResourceClaim { name: claims::CLAIM.to_owned(), ..ResourceClaim::default() };
    let resources = ResourceRequirements {
        claims: has_gpus.then(|| vec![claim]),
        limits: memory.map(|memory| BTreeMap::from([memory])),
        requests: (!requests.is_empty()).then_some(requests),
    };
    (resources != ResourceRequirements::default()).then_some(resources)
}

const TOOLS_VOLUME: &str = "gpu-run";

/// Volumes for the programs, the script, the key, and as much shared memory as Slurm's jobs are used to.
fn own_volumes(job: &Job) -> (Vec<Volume>, Vec<VolumeMount>) {
    let volume = |name: &str| Volume { name: name.to_owned(), ..Volume::default() };
    let empty = |medium: Option<&str>| {
        Some(EmptyDirVolumeSource { medium: medium.map(str::to_owned), ..EmptyDirVolumeSource::default() })
    };
    let mut volumes = vec![Volume { empty_dir: empty(None), ..volume(TOOLS_VOLUME) }];
    let mut mounts = vec![mount(TOOLS_VOLUME, TOOLS, true)];
    if matches!(job.program, Program::Script { .. }) {
        let script = ConfigMapVolumeSource {
            name: job.name.clone(),
            default_mode: Some(0o555),
            ..ConfigMapVolumeSource::default()
        };
        volumes.push(Volume { config_map: Some(script), ..volume("script") });
        mounts.push(mount("script", SCRIPT_FOLDER, true));
    }
    if has_steps(job) {
        let key = SecretVolumeSource { secret_name: Some(job.name.clone()), ..SecretVolumeSource::default() };
        volumes.push(Volume { secret: Some(key), ..volume("key") });
        mounts.push(mount("key", KEY_FOLDER, true));
    }
    if !job.defaults.volume_mounts.iter().any(|mount| mount.mount_path == "/dev/shm") {
        volumes.push(Volume { empty_dir: empty(Some("Memory")), ..volume("shared-memory") });
        mounts.push(mount("shared-memory", "/dev/shm", false));
    }
    (volumes, mounts)
}

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// A mount of the user: of a claim, of a folder in a volume of the site, or else of the node.
fn mounted(job: &Job, index: usize, wanted: &Mount) -> (Option<Volume>, VolumeMount) {
    let read_only = wanted.read_only.then_some(true);
    if let Some((site, folder)) = in_site(job, &wanted.source) {
        let sub_path = [site.sub_path.as_deref().unwrap_or_default(), folder]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<&str>>()
            .join("/");
        let mount = VolumeMount {
            mount_path: wanted.path.clone(),
            sub_path: (!sub_path.is_empty()).then_some(sub_path),
            read_only: read_only.or(site.read_only),
            ..site.clone()
        };
        return (None, mount);
    }
    let name = format!("mount-{index}");
    let mut volume = Volume { name: name.clone(), ..Volume::default() };
    if wanted.source.starts_with('/') {
        let path = HostPathVolumeSource { path: wanted.source.clone(), ..HostPathVolumeSource::default() };
        volume.host_path = Some(path);
    } else {
        volume.persistent_volume_claim =
            Some(PersistentVolumeClaimVolumeSource { claim_name: wanted.source.clone(), read_only });
    }
    (Some(volume), VolumeMount { read_only, ..mount(&name, &wanted.path, false) })
}

/// The site's mount with the path, and the folder below the mount.
fn in_site<'j>(job: &'j Job, path: &'j str) -> Option<(&'j VolumeMount, &'j str)> {
    let mounts = job.defaults.volume_mounts.iter();
    let below = mounts.filter_map(|mount| {
        let rest = path.strip_prefix(mount.mount_path.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then(|| (mount, rest.trim_matches('/')))
    });
    below.max_by_key(|(mount, _)| mount.mount_path.len())
}
