//! Text below the arguments in `--help`: examples, and the meaning of answers.

/// Of the program.
pub const AFTER_HELP: &str = "\
Only run, cancel, resume and ungate change anything in the cluster. Each command's --help has examples and its exit codes; 2 is always an error.";

/// Of `kubectl gpu allocate`.
pub const ALLOCATE_HELP: &str = r#"Examples:
  # Where a waiting pod would fit, and what it would get there
  kubectl gpu allocate pod/trainer -n research

  # What a claim from a file would get in the cluster, before it is applied
  kubectl gpu allocate -f claim.yaml

  # The same without a cluster: slices, classes, nodes and allocated claims from files, too
  kubectl get resourceslices,deviceclasses,nodes,resourceclaims -A -o yaml > cluster.yaml
  kubectl gpu allocate -f cluster.yaml -f pod.yaml -o json

  # One JSON request a line, for other programs
  kubectl gpu allocate --lines < requests.jsonl

Beside devices, these count: node selectors, node affinity, taints, cordons, and the CPU, memory, ports and pod slots left on each node. Spreading and pod affinity do not count. Each pod or claim is answered as if it came first.

Exit codes: 0 each fits on some node, 1 at least one fits on none, 2 an error."#;

/// Of `kubectl gpu explain`.
pub const EXPLAIN_HELP: &str = r#"Examples:
  # Why a pod waits, and what would help
  kubectl gpu explain pod/trainer -n research

  # Why a claim got its devices
  kubectl gpu explain claim/shared-gpu

  # Every node and every device
  kubectl gpu explain pod/trainer -v

  # From files
  kubectl gpu explain pod/trainer -f cluster.yaml -f pod.yaml

Exit codes: 0 it has its devices or would fit, 1 it does not fit or cannot be prepared, 2 an error."#;

/// Of `kubectl gpu cel`.
pub const CEL_HELP: &str = r#"Examples:
  # The cards of the cluster with at least 40000 MiB
  kubectl gpu cel 'device.attributes["gpu.tessera.dev"].memoryMiB >= 40000'

  # Why a device does not match: every part of the expression with its value
  kubectl gpu cel 'device.attributes["gpu.tessera.dev"].type == "mig"' --device node-a/gpu-3b-00

  # Devices from files, as JSON
  kubectl gpu cel 'device.allowMultipleAllocations' -f slices.yaml -o json

  # One JSON request a line, for other programs
  kubectl gpu cel --lines < requests.jsonl

Exit codes: 0 a device matches, 1 none does, 2 the expression is invalid, fails on a device, or another error."#;

/// Of `kubectl gpu pools`.
pub const POOLS_HELP: &str = r#"Examples:
  # All pools
  kubectl gpu pools

  # One pool: its conditions, the waiting pods with their requests, and the nodes with their cards
  kubectl gpu pools inference

  # From files
  kubectl get gpupools,resourceslices -o yaml > cluster.yaml
  kubectl gpu pools -f cluster.yaml -o wide

ALLOCATED and UNALLOCATABLE are in cards' worth: a partition counts by its share of the card's memory. UNALLOCATABLE is free, but no waiting pod can use it. WAITING is the number of pods.

Exit codes: 0 all are ready, 1 one is not ready or has no current status, 2 an error."#;

/// Of `kubectl gpu quota`.
pub const QUOTA_HELP: &str = r#"Examples:
  # All quotas, a row for each amount
  kubectl gpu quota

  # One quota: its conditions, namespaces and amounts
  kubectl gpu quota vision

  # For a script
  kubectl gpu quota -o json

  # The nearest ResourceQuota, for namespaces whose claims kube-scheduler allocates
  kubectl gpu quota vision --native

Cards have two decimals: a partition counts by its share of the card's memory. Of USED, BORROWED is beyond the guarantee. LENT is guaranteed, but used by other teams. HOURS are GPU hours of the current day, week or month, of the budget, with those of children. HOURS LEFT, with -o wide, is what remains of the budget. WAITING is the number of the team's pods.

Exit codes: 0 all are ready, 1 one is not ready or has no current status, 2 an error. With --native 0, or 2."#;

/// Of `kubectl gpu kueue`.
pub const KUEUE_HELP: &str = r#"Examples:
  # ResourceFlavors of managed GpuPools, Cohorts and ClusterQueues of GpuQuotas
  kubectl gpu kueue > kueue.yaml
  kubectl apply --server-side -f kueue.yaml

  # With jobs admitted once their pods have room
  kubectl gpu kueue --admission-check

  # What Kueue's Configuration needs, to count claims for cards
  kubectl gpu kueue --configuration

  # From files
  kubectl get resourceslices,deviceclasses,gpupools,gpuquotas -o yaml > cluster.yaml
  kubectl gpu kueue -f cluster.yaml

A guarantee becomes nominalQuota, a limit borrowingLimit, a parent a Cohort; cards without a guarantee belong to the Cohort of all. With several pools cards are divided by the pools' sizes. What Kueue cannot count is named in comments. LocalQueues are for you to make. Written for Kueue 0.17 (docs/kueue.md).

Exit codes: 0 printed, 2 an error."#;

/// Of `kubectl gpu report`.
pub const REPORT_HELP: &str = r#"Examples:
  # GPU hours of all teams: the current period and the last twelve
  kubectl gpu report

  # The months of a quarter, for a spreadsheet
  kubectl gpu report --from 2026-10 --to 2026-12 -o csv

  # With the cost, where an hour of any card has one price
  kubectl gpu report --from 2026-11 --price 2.5

  # By model, with a price for one of them, and one for all others
  kubectl gpu report --by-model --price 'NVIDIA H100 80GB HBM3=2.5' --price 1

Allocated hours, from the status of the GpuQuotas; no Prometheus is needed. Periods are those of the budgets (day, week or month, in UTC), and are told whole: the ones that begin from --from to --to. Those of the current period are so far. A parent's hours include those of its children. A model without a price costs nothing; hours counted by older versions have none. Hours by namespace, and busy hours, are metrics (docs/gpu-quotas.md).

Exit codes: 0 there are hours, 1 there are none, 2 an error."#;

/// Of `kubectl gpu topology`.
pub const TOPOLOGY_HELP: &str = r#"Examples:
  # The nodes with cards
  kubectl gpu topology

  # Links between the cards of a node (as in `nvidia-smi topo -m`), groups, and who holds what
  kubectl gpu topology node-a

  # For programs
  kubectl gpu topology node-a -o json

Exit codes: 0 there are cards, 1 there are none, 2 an error."#;

/// Of `kubectl gpu doctor`.
pub const DOCTOR_HELP: &str = r#"Examples:
  # Problems, each with a remedy
  kubectl gpu doctor

  # Problems of one node
  kubectl gpu doctor --node node-a

  # For a monitor
  kubectl gpu doctor -o json

It checks versions, feature gates, clocks, the controller, admission policies, kubelet plugins and their reports, container runtimes, NVIDIA's driver, slices, faulty cards, cards also managed by another driver, a device plugin or the GPU Operator's MIG manager, DeviceClasses, GpuPools, namespaces ordered both by Kueue and by a GpuQuota, and claims with missing, unprepared or unused devices. Objects you may not read are not checked.

Exit codes: 0 no problems, 1 at least one problem, 2 an error."#;

/// Of `kubectl gpu queue`.
pub const QUEUE_HELP: &str = r#"Examples:
  # Waiting pods and gangs, next in turn first
  kubectl gpu queue

  # Those of one namespace, for a script
  kubectl gpu queue -n research -o json

A gang has one row. Higher priority goes first, then the order of becoming complete; with GpuQuotas this is the order inside a TEAM, and teams below their guarantees go first, then those with least recent use for their weight. The pool decides whether others may pass (placement.queue). Pods without a place come last: kube-scheduler allocates for them, in its own order, and WHY is its message. POOLS have the requested kind of device on their nodes, free or not. The controller answers, as for `kubectl gpu top`.

Exit codes: 0 done, 2 an error."#;

/// Of `kubectl gpu top`.
pub const TOP_HELP: &str = r#"Examples:
  # Allocation and usage by namespace, most idle first; at a terminal renewed every five seconds
  kubectl gpu top namespaces

  # Each card of a node: allocated, busy, memory, power
  kubectl gpu top cards --node node-a

  # Who holds devices without use, and at what cost
  kubectl gpu top --idle

  # Once, for a script
  kubectl gpu top pods -n research --once -o json

ALLOCATED, BUSY and IDLE are in cards' worth: a partition counts by its share of the card's memory, BUSY by multiprocessors. IDLE is allocated but not busy. `-` means no data. The controller answers through a forwarded port; this takes the right to create pods/portforward in its namespace.

Exit codes: 0 there are cards, 1 there are none, 2 an error."#;

/// Of `kubectl gpu advise`.
pub const ADVISE_HELP: &str = r#"Examples:
  # A smaller device for each claim, largest saving first
  kubectl gpu advise

  # Of one namespace, and the manifests to apply
  kubectl gpu advise -n research
  kubectl gpu advise -n research -o yaml > advised.yaml

  # Would the advised devices be available?
  kubectl gpu allocate -f advised.yaml

  # Include claims observed for ten minutes
  kubectl gpu advise --min-observed 10m

  # From files: a fleet.json saved from the fleet page, and the cluster's objects
  kubectl get resourceslices,deviceclasses,resourceclaims,pods -A -o yaml > cluster.yaml
  kubectl gpu advise --fleet fleet.json -f cluster.yaml

The controller keeps each claim's peak usage since it began to observe it. The advice is the smallest device offered of the same card model with a fifth more than both peaks: memory, and busy multiprocessors. A peak of four times the mean is a burst: the advice then includes shares and time-slices, sized by memory and mean. Claims of one template get one advice. Without -n all namespaces are shown. Nothing is changed.

Exit codes: 0 some claim could use a smaller device, 1 none could, 2 an error."#;

/// Of `kubectl gpu simulate`.
pub const SIMULATE_HELP: &str = r#"Examples:
  # A workload on ten machines, with Tessera and with other schedulers
  kubectl gpu simulate --nodes 10xdgx-h100 --workload jobs.csv

  # The pods of openb's trace, at their times
  kubectl gpu simulate --nodes 8xdgx-h100 --workload openb_pod_list_default.csv \
      --policy tessera,hami-binpack

  # How much more would fit after two hours, and the monthly cost of the cards in use
  kubectl gpu simulate --nodes 8xdgx-a100,cards=4 --workload jobs.csv --at 2h --wish 1xgpu,4xgpu \
      --price A100-SXM4-80GB=1500

  # Would two more machines help?
  kubectl gpu simulate --nodes 10xdgx-h100 --add 2xdgx-h100 --workload jobs.csv

  # Manifests, with the cards offered by these GpuPools
  kubectl gpu simulate --nodes 10xdgx-h100 --pool pools.yaml -f manifests/

  # How long would teams wait with these GpuQuotas? The list has a column namespace
  kubectl gpu simulate --nodes 10xdgx-h100 --workload jobs.csv --quota quotas.yaml --policy tessera

  # With the MIG layouts named by the pools
  kubectl gpu simulate --nodes 10xdgx-h100 --pool pools.yaml --mig-layouts config.yaml -f manifests/

  # The cluster with its waiting pods: how much more would fit, also with two more machines
  kubectl gpu simulate --wish 1xgpu,4xgpu --add 2xdgx-h100

  # The cluster with other GpuPools
  kubectl gpu simulate --pool pools.yaml --wish 1xgpu,15%

  # The same from files
  kubectl get nodes,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates,pods -A \
      -o yaml > cluster.yaml
  kubectl gpu simulate -f cluster.yaml --wish 1xgpu,4xgpu --add 2xdgx-h100

  # Alibaba's cluster of 6,212 cards: how much of it each policy would allocate
  kubectl gpu simulate --openb openb_node_list_gpu_node.csv openb_pod_list_default.csv

  # Two policies side by side, with more runs
  kubectl gpu simulate --openb nodes.csv pods.csv --policy tessera-bare,fgd --runs 50

  # For programs; the same seed gives the same numbers everywhere
  kubectl gpu simulate --openb nodes.csv pods.csv --runs 10 --seed 42 -o json

A workload has a line for each kind of pod: name,count,gpu,at,every,duration, where gpu is 4 (cards), 1g.10gb (a MIG partition) or 15% (a share of a card). Manifests are Pods, Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs (one run), JobSets and LeaderWorkerSets with their claims. Pods that do not fit wait. The pods of a trace arrive in random order until they ask for 130 % of the cards; none departs, and pods that do not fit are dropped. All policies get the same arrivals. Formats and policies: docs/simulate.md.

Exit codes: 0 simulated, 2 an error."#;

/// Of `kubectl gpu fleet`.
pub const FLEET_HELP: &str = r#"Examples:
  # Prints the address to open in a browser; ends with Ctrl-C
  kubectl gpu fleet

  # On another port of this machine
  kubectl gpu fleet --port 9000

The page is the leading controller's; when another takes over, its page is shown."#;

/// Of `kubectl gpu defrag`.
pub const DEFRAG_HELP: &str = r#"Examples:
  # Who would have to move, and where to, for each pod that waits
  kubectl gpu defrag

  # For one pod
  kubectl gpu defrag --for pod/trainer -n research

  # For eight whole cards on one node, for a partition, for a node without GPU pods
  kubectl gpu defrag --cards 8
  kubectl gpu defrag --profile 3g.40gb
  kubectl gpu defrag --empty-node

  # From files, as JSON
  kubectl get resourceslices,deviceclasses,nodes,resourceclaims,pods,jobs,pdb -A \
      -o yaml > cluster.yaml
  kubectl gpu defrag --cards 4 -f cluster.yaml -o json

Nothing is moved. Evict all of the pods listed: one may get the devices that another leaves. LOST is running time in card-hours, a partition counting by its share of the card's memory. The moves with the least lost are proposed, then those of the fewest pods. A gang moves as a whole. Only pods on one node are moved, and none to make room for another that moves; the 256 cheapest sets of pods are tried. Pods without a controller stay, and so do pods of DaemonSets, of Jobs that fail by an eviction, pods that share a claim, and those that a PodDisruptionBudget protects now. Of the pods of a waiting gang each is answered alone.

Exit codes: 0 each fits, now or after the moves, 1 at least one does not, 2 an error."#;

/// Of `kubectl gpu ungate`.
pub const UNGATE_HELP: &str = r#"Examples:
  # Remove the gate of one pod
  kubectl gpu ungate trainer -n research

  # List the gated pods of the whole cluster
  kubectl gpu ungate --all -A --dry-run

  # Remove the gate of all pods, for example after removing the controller
  kubectl gpu ungate --all -A

kube-scheduler then chooses their nodes alone. Other gates stay. New pods get the gate as long as they or their namespace have the label gpu.tessera.dev/steering=enabled.

Exit codes: 0 no pod has the gate any more, 1 a named pod had none, 2 an error."#;

/// Of `kubectl gpu run`.
pub const RUN_HELP: &str = r#"Examples:
  # A command in four pods with eight cards each, which start together
  kubectl gpu run --nodes=4 --gres=gpu:8 --time=4:00:00 --image=IMAGE -- python train.py

  # A script with #SBATCH lines; options of the command line win
  kubectl gpu run --account=vision --time=2-12 train.sh --epochs 90

  # A MIG partition, a share of a card, a model of card
  kubectl gpu run --gres=gpu:1g.10gb --image=IMAGE -- python infer.py
  kubectl gpu run --gres=shard:1 --image=IMAGE -- python infer.py
  kubectl gpu run --gres=gpu:h100:2 --image=IMAGE -- python train.py

  # Sixteen runs, four at once
  kubectl gpu run --array=0-15%4 --gres=gpu:1 sweep.sh

  # The objects that it makes, without a cluster
  kubectl gpu run -o yaml train.sh

The script runs once, in the first pod; `srun` in it starts a command in all pods. Output is in the pods' logs. Options of sbatch that do nothing here are named; those without which the job would be another are refused, with what to do instead. The namespace's ConfigMap gpu-run has defaults: image, toolsImage, user, environment, volumes, volumeMounts. All that a job consists of is owned by its Job, which is deleted a week after its end.

Exit codes: that of the job, where it is followed; 2 also for an error, 1 for a job that was cancelled or has none. Else 0 submitted, 2 an error."#;

/// Of `kubectl gpu resume`.
pub const RESUME_HELP: &str = r#"Examples:
  # The pod in place of an evicted server that used none of its cards waits as any other
  kubectl gpu resume server-7d9f-x2k4p -n vision

Exit codes: 0 resumed, 1 a pod does not exist or was not made in place of an idle one, 2 an error."#;

/// Of `kubectl gpu cancel`.
pub const CANCEL_HELP: &str = r#"Examples:
  # End a job, and delete its objects
  kubectl gpu cancel train -n vision

Exit codes: 0 cancelled, 1 one does not exist, 2 an error."#;

/// Of `kubectl gpu get`.
pub const GET_HELP: &str = r#"Examples:
  # The cards, and all devices held by claims
  kubectl gpu get

  # All devices offered on a node, with memory, UUID and claims
  kubectl gpu get devices --node node-a --all -o wide

  # Claims of a namespace with their devices; then their changes
  kubectl gpu get claims -n research -w

A claim with several devices has a row for each. -w checks every two seconds and prints a row for each change, also for removed objects; with -o json one object a line.

Exit codes: 0 something is listed, 1 nothing, 2 an error."#;

/// Of `kubectl gpu migrate`.
pub const MIGRATE_HELP: &str = r#"Examples:
  # The settings of NVIDIA's DRA driver carried over, and the steps
  kubectl gpu migrate --from nvidia-dra

  # For helm and kubectl
  kubectl gpu migrate --from gpu-operator -o values > values.yaml
  kubectl gpu migrate --from gpu-operator -o yaml > manifests.yaml

  # From files
  kubectl get secrets -A -l owner=helm,status=deployed -o yaml > helm.yaml
  kubectl get nodes,pods,configmaps,daemonsets,deviceclasses,clusterpolicies -A \
      -o yaml > cluster.yaml
  kubectl gpu migrate --from device-plugin -f helm.yaml -f cluster.yaml

It reads the helm release (a Secret), ClusterPolicies, ConfigMaps with time-slicing, MPS and MIG layouts, node labels, and the workloads with cards. Without the right to read Secrets it reads DaemonSets instead. Nothing is changed.

Exit codes: 0 done, 2 an error."#;

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::arguments::Arguments;

    /// Commands can be copied from the help: clap wraps at 100 columns where it knows no terminal.
    #[test]
    fn examples_are_not_wrapped() {
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
            // clap wraps text, and keeps line breaks inside a paragraph.
            let prose = help
                .split("\n\n")
                .filter(|paragraph| !paragraph.starts_with("  ") && !paragraph.contains("\n  "));
            for paragraph in prose {
                assert_eq!(paragraph.lines().count(), 1, "{}: {paragraph}", command.get_name());
            }
        }
    }
    #[test]
    fn every_command_is_in_the_readme_and_on_its_page() {
        for file in ["../README.md", "../docs/kubectl-gpu.md"] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            for command in Arguments::command().get_subcommands() {
                let name = command.get_name();
                let named = [format!("`{name}`"), format!("`kubectl gpu {name}")];
                assert!(named.iter().any(|named| text.contains(named)), "{file} does not name {name}");
            }
        }
    }
}
