//! The environment of a pod: variables of `gpu-run`, and the variables of Slurm not set by it.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};

use super::has_steps;
use crate::job::Job;

/// Kubernetes' annotation of the pods of Indexed Jobs.
const INDEX: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

/// The folder of the key shared by the pods of a job.
pub const KEY_FOLDER: &str = "/gpu-run-key";

/// Variables of the site and the user, then ours: these cannot be overridden.
pub fn variables(job: &Job) -> Vec<EnvVar> {
    let mut variables: Vec<EnvVar> =
        job.environment.iter().map(|(name, value)| variable(name, value)).collect();
    let mut set = |name: &str, value: String| variables.push(variable(name, &value));
    set("GPU_RUN_TASKS", job.tasks.to_string());
    set("GPU_RUN_TASKS_PER_NODE", job.tasks_per_node.to_string());
    if let Some(distribution) = &job.distribution {
        set("SLURM_DISTRIBUTION", distribution.clone());
    }
    if let Some(cpus) = job.cpus_per_task {
        set("GPU_RUN_CPUS_PER_TASK", cpus.to_string());
    }
    if let Some(gpus) = job.gpus_per_task {
        set("GPU_RUN_GPUS_PER_TASK", gpus.to_string());
    }
    set("SLURM_JOB_NAME", job.job_name.clone());
    set("SLURM_JOB_ID", job.number().to_string());
    set("SLURM_NNODES", job.nodes.to_string());
    // Of all cards of a node nobody knows the number beforehand.
    let gpus: u32 = job.gpus.iter().map(|amount| amount.count).sum();
    if gpus > 0 {
        set("SLURM_GPUS_ON_NODE", gpus.to_string());
    }
    if let [pool] = job.pools.as_slice() {
        set("SLURM_JOB_PARTITION", pool.clone());
    }
    if let Some(array) = &job.array {
        let tasks: Vec<String> = array.tasks.iter().map(ToString::to_string).collect();
        set("SLURM_ARRAY_JOB_ID", job.number().to_string());
        set("SLURM_ARRAY_TASK_COUNT", tasks.len().to_string());
        set("SLURM_ARRAY_TASK_MIN", tasks.first().cloned().unwrap_or_default());
        set("SLURM_ARRAY_TASK_MAX", tasks.last().cloned().unwrap_or_default());
        // Of these gpu-run takes the one at the pod's index, for SLURM_ARRAY_TASK_ID.
        set("GPU_RUN_ARRAY_TASKS", tasks.join(","));
        set("GPU_RUN_INDEX", "0".to_owned());
        return variables;
    }
    if has_steps(job) {
        let hosts: Vec<String> =
            (0..job.nodes).map(|index| format!("{}-{index}.{}", job.name, job.name)).collect();
        set("GPU_RUN_HOSTS", hosts.join(","));
        set("GPU_RUN_KEY_FILE", format!("{KEY_FOLDER}/{}", super::STEP_KEY));
    }
    variables.push(of_field("GPU_RUN_INDEX", INDEX));
    variables
}

fn variable(name: &str, value: &str) -> EnvVar {
    // Kubernetes would expand $(NAME).
    EnvVar { name: name.to_owned(), value: Some(value.replace("$(", "$$(")), ..EnvVar::default() }
}

fn of_field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value_from: Some(source), ..EnvVar::default() }
}
