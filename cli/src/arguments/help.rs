//! Text below the arguments in `--help`: examples, and the meaning of answers.

/// Of the program.
pub const AFTER_HELP: &str = "\
Exit codes: 0 it fits (cel: a device matches; pools: all are ready), 1 it does not, 2 an error.";

/// Of `kubectl gpu allocate`.
pub const ALLOCATE_HELP: &str = r#"Examples:
  # Where a waiting pod would fit, and what it would get there
  kubectl gpu allocate pod/trainer -n research

  # What a claim of a file would get in the cluster, before it is applied
  kubectl gpu allocate -f claim.yaml

  # The same without a cluster: slices, classes, nodes and allocated claims from files too
  kubectl get resourceslices,deviceclasses,nodes,resourceclaims -A -o yaml > cluster.yaml
  kubectl gpu allocate -f cluster.yaml -f pod.yaml -o json

  # One JSON request a line, for other programs
  kubectl gpu allocate --lines < requests.jsonl

Of what is not devices, node selectors, node affinity, taints, cordons, and what pods leave of CPU, memory, ports and
the number of pods count; spreading and pod affinity do not.
Several pods or claims are each answered as if they came first.

Exit codes: 0 all fit on some node, 1 one does not, 2 an error."#;

/// Of `kubectl gpu explain`.
pub const EXPLAIN_HELP: &str = r#"Examples:
  # Why a pod waits, and what would help
  kubectl gpu explain pod/trainer -n research

  # Why a claim got the devices it has
  kubectl gpu explain claim/shared-gpu

  # Every node and every device
  kubectl gpu explain pod/trainer -v

  # From files
  kubectl gpu explain pod/trainer -f cluster.yaml -f pod.yaml

Exit codes: 0 it has its devices or would fit, 1 it does not fit, 2 an error."#;

/// Of `kubectl gpu cel`.
pub const CEL_HELP: &str = r#"Examples:
  # The cards of the cluster with at least 40000 MiB
  kubectl gpu cel 'device.attributes["gpu.tessera.dev"].memoryMiB >= 40000'

  # Why a device does not match: every part of the expression with its value
  kubectl gpu cel 'device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"].type == "mig"' \
      --device node-a/gpu-3b-00

  # Devices of files, as JSON
  kubectl gpu cel 'device.allowMultipleAllocations' -f slices.yaml -o json

  # One JSON request a line, for other programs
  kubectl gpu cel --lines < requests.jsonl

Exit codes: 0 a device matches, 1 none does, 2 the expression is wrong or fails on a device."#;

/// Of `kubectl gpu pools`.
pub const POOLS_HELP: &str = r#"Examples:
  # All pools
  kubectl gpu pools

  # One of them: its conditions, who waits for what, and the nodes with their cards
  kubectl gpu pools inference

  # From files
  kubectl get gpupools,resourceslices -o yaml > cluster.yaml
  kubectl gpu pools -f cluster.yaml -o wide

ALLOCATED and UNALLOCATABLE are cards' worth: a partition counts by its share of the card's memory. WAITING is pods.

Exit codes: 0 all are ready, 1 one is not or nothing current is known of it, 2 an error."#;

/// Of `kubectl gpu topology`.
pub const TOPOLOGY_HELP: &str = r#"Examples:
  # The nodes with cards
  kubectl gpu topology

  # Links between the cards of a node as `nvidia-smi topo -m` prints them, groups, and who holds what
  kubectl gpu topology node-a

  # For programs
  kubectl gpu topology node-a -o json

Exit codes: 0 there are cards, 1 there are none, 2 an error."#;

/// Of `kubectl gpu doctor`.
pub const DOCTOR_HELP: &str = r#"Examples:
  # What is wrong, and what to do about it
  kubectl gpu doctor

  # Of one node
  kubectl gpu doctor --node node-a

  # For a monitor
  kubectl gpu doctor -o json

It looks at versions, feature gates, clocks, the controller, admission policies, kubelet plugins and what they say of themselves, container
runtimes and NVIDIA's driver, slices, sick cards, cards that another driver, a device plugin or the GPU Operator's MIG manager owns as
well, DeviceClasses, GpuPools, and claims whose devices are gone, cannot be prepared or are used by nobody. What you may not read is
not looked at.

Exit codes: 0 nothing is wrong, 1 something is, 2 an error."#;

/// Of `kubectl gpu queue`.
pub const QUEUE_HELP: &str = r#"Examples:
  # Who waits, the first first
  kubectl gpu queue

  # A team's, for a script
  kubectl gpu queue -n research -o json

A gang has one row. A higher priority goes first, then who was complete first; whether the others may pass is said by the pool
(placement.queue). Pods without a place come last: kube-scheduler allocates what they ask for, in an order of its own, and the reason
is what it says of them. POOLS are those on whose nodes there is what is asked for, free or not. The controller answers, as for
`kubectl gpu top`.

Exit codes: 0 done, 2 an error."#;

/// Of `kubectl gpu top`.
pub const TOP_HELP: &str = r#"Examples:
  # What teams have and use, most idle first; renewed every five seconds at a terminal
  kubectl gpu top namespaces

  # Each card: allocated beside busy, memory, power
  kubectl gpu top cards --node node-a

  # Once, for a script
  kubectl gpu top pods -n research --once -o json

ALLOCATED and BUSY are cards' worth: a partition counts by its share of the card's memory, what is busy by its multiprocessors. IDLE is
allocated and not busy. `-` is what no plugin tells. The controller answers, through a forwarded port: that takes the right to create
pods/portforward in its namespace.

Exit codes: 0 there are cards, 1 there are none, 2 an error."#;

/// Of `kubectl gpu advise`.
pub const ADVISE_HELP: &str = r#"Examples:
  # What each claim could do with less, most saved first
  kubectl gpu advise

  # One namespace's, and what to apply for it
  kubectl gpu advise -n research
  kubectl gpu advise -n research -o yaml > advised.yaml

  # Would the scheduler find what is advised?
  kubectl gpu allocate -f advised.yaml

  # Judge claims that were watched for ten minutes
  kubectl gpu advise --min-observed 10m

  # From files: a fleet.json saved from the fleet page, and the cluster's objects
  kubectl get resourceslices,deviceclasses,resourceclaims,pods -A -o yaml > cluster.yaml
  kubectl gpu advise --fleet fleet.json -f cluster.yaml

The controller remembers what each claim used at most, from the time that it began to watch. A claim is advised the smallest device that
its card's model is offered as, and that has a fifth more than both peaks: memory, and busy multiprocessors. A peak of four times
the mean is a burst: such claims are advised shares and time-slices, sized by memory and mean. Claims of one template are
judged together. -n shows one namespace, else all are shown. Nothing is changed.

Exit codes: 0 some claim could do with less, 1 none could, 2 an error."#;

/// Of `kubectl gpu simulate`.
pub const SIMULATE_HELP: &str = r#"Examples:
  # What ten machines would make of a workload, with us and with others
  kubectl gpu simulate --nodes 10xdgx-h100 --workload jobs.csv

  # The same with the pods of openb's trace, at their times
  kubectl gpu simulate --nodes 8xdgx-h100 --workload openb_pod_list_default.csv --policy tessera,hami-binpack

  # What would still fit after two hours, and what the cards in use cost a month
  kubectl gpu simulate --nodes 8xdgx-a100,cards=4 --workload jobs.csv --at 2h --wish 1xgpu,4xgpu --price A100-SXM4-80GB=1500

  # Would two more help?
  kubectl gpu simulate --nodes 10xdgx-h100 --add 2xdgx-h100 --workload jobs.csv --policy tessera,kube-scheduler

  # What would these GpuPools make of it, and what of these manifests?
  kubectl gpu simulate --nodes 10xdgx-h100 --pool pools.yaml -f manifests/

  # The same with the MIG layouts that the pools name
  kubectl gpu simulate --nodes 10xdgx-h100 --pool pools.yaml --mig-layouts config.yaml -f manifests/

  # The cluster as it is: who waits would get what, what would still fit, and what with two machines more
  kubectl gpu simulate --wish 1xgpu,4xgpu --add 2xdgx-h100

  # What would these GpuPools make of its cards?
  kubectl gpu simulate --pool pools.yaml --wish 1xgpu,15%

  # The same from files
  kubectl get nodes,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates,pods -A -o yaml > cluster.yaml
  kubectl gpu simulate -f cluster.yaml --wish 1xgpu,4xgpu --add 2xdgx-h100

  # How much of Alibaba's cluster of 6,212 cards each policy would allocate
  kubectl gpu simulate --openb openb_node_list_gpu_node.csv openb_pod_list_default.csv

  # Two of them side by side, with more runs
  kubectl gpu simulate --openb nodes.csv pods.csv --policy tessera-bare,fgd --runs 50

  # For programs; the same seed gives the same numbers everywhere
  kubectl gpu simulate --openb nodes.csv pods.csv --runs 10 --seed 42 -o json

A workload has a line for pods that are alike: name,count,gpu,at,every,duration, where gpu is 4 (cards), 1g.10gb (a MIG
partition) or 15% (a share of a card). Manifests are Pods, Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs (one run),
JobSets and LeaderWorkerSets with their claims. Pods that do not fit wait. Of a trace, pods arrive in random order until they would
ask for 130 % of the cards; nobody leaves, and who finds no room is gone. All policies see the same arrivals. What is in
the files, and what each policy does: docs/simulate.md.

Exit codes: 0 it was simulated, 2 an error."#;

/// Of `kubectl gpu fleet`.
pub const FLEET_HELP: &str = r#"Examples:
  # Open the address that it prints in a browser; ends with Ctrl-C
  kubectl gpu fleet

  # On another port of this machine
  kubectl gpu fleet --port 9000

It goes on while controllers come and go: the page is that of whoever leads."#;

/// Of `kubectl gpu ungate`.
pub const UNGATE_HELP: &str = r#"Examples:
  # Let one pod go
  kubectl gpu ungate trainer -n research

  # Which pods of the whole cluster the gate holds back
  kubectl gpu ungate --all -A --dry-run

  # Let all of them go, as when the controller is gone for good
  kubectl gpu ungate --all -A

kube-scheduler then chooses their node alone. Gates of others stay. New pods get the gate as long as their namespace or
they themselves have the label gpu.tessera.dev/steering=enabled.

Exit codes: 0 the gate is off all of them (with --all, also where no pod had it), 1 a named pod had none, 2 an error."#;

/// Of `kubectl gpu get`.
pub const GET_HELP: &str = r#"Examples:
  # The cards, and everything that somebody holds
  kubectl gpu get

  # Everything that a node offers, with memory, uuid and claims
  kubectl gpu get devices --node node-a --all -o wide

  # Claims of a team and the devices that they have; then what changes
  kubectl gpu get claims -n research -w

Of several devices of one claim each has a row. -w looks every two seconds; what is gone gets a row that says so, and -o json one
object a line.

Exit codes: 0 there is something, 1 there is nothing, 2 an error."#;

/// Of `kubectl gpu migrate`.
pub const MIGRATE_HELP: &str = r#"Examples:
  # What becomes of the settings of NVIDIA's DRA driver, and the steps
  kubectl gpu migrate --from nvidia-dra

  # For helm and kubectl
  kubectl gpu migrate --from gpu-operator -o values > values.yaml
  kubectl gpu migrate --from gpu-operator -o yaml > manifests.yaml

  # From files
  kubectl get secrets -A -l owner=helm,status=deployed -o yaml > helm.yaml
  kubectl get nodes,pods,configmaps,daemonsets,deviceclasses,clusterpolicies -A -o yaml > cluster.yaml
  kubectl gpu migrate --from device-plugin -f helm.yaml -f cluster.yaml

It reads the release of helm (a Secret), ClusterPolicies, ConfigMaps with time-slicing, MPS and MIG layouts, labels of nodes, and who
asks for what. Without the right to read Secrets it reads what DaemonSets say. Nothing is changed.

Exit codes: 0 done, 2 an error."#;
