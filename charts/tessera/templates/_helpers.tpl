{{- /* Base of all names of this release: its own name, followed by the chart's if that is not in it. */}}
{{- define "tessera.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "tessera.kubeletPlugin.name" -}}
{{ include "tessera.name" . }}-kubelet-plugin
{{- end }}

{{- /* Name of cluster-wide objects, with the namespace: releases in two namespaces may have the same name. */}}
{{- define "tessera.clusterName" -}}
{{- $name := include "tessera.kubeletPlugin.name" . -}}
{{- if eq .Release.Namespace $name }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end -}}
{{- end }}

{{- define "tessera.serviceAccount.name" -}}
{{ .Values.serviceAccount.name | default (include "tessera.kubeletPlugin.name" .) }}
{{- end }}

{{- define "tessera.labels" -}}
{{ include "tessera.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "tessera.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: kubelet-plugin
{{- end }}

{{- /* The same as a label selector on a command line. */}}
{{- define "tessera.selector" -}}
{{- $labels := list -}}
{{- range $name, $value := fromYaml (include "tessera.selectorLabels" .) }}{{- $labels = append $labels (printf "%s=%s" $name $value) -}}{{- end -}}
{{ join "," $labels }}
{{- end }}

{{- define "tessera.mpsHost.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: mps-host
{{- end }}

{{- define "tessera.controller.name" -}}
{{ include "tessera.name" . }}-controller
{{- end }}

{{- /* As tessera.clusterName: (list . "controller"). */}}
{{- define "tessera.clusterNameOf" -}}
{{- $name := printf "%s-%s" (include "tessera.name" (index . 0)) (index . 1) -}}
{{- $namespace := (index . 0).Release.Namespace -}}
{{- if eq $namespace $name }}{{ $name }}{{ else }}{{ printf "%s-%s" $namespace $name }}{{ end -}}
{{- end }}

{{- define "tessera.controller.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "tessera.controller.labels" -}}
{{ include "tessera.controller.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Whether this is an older Kubernetes than 1.36, the first on which everything works: "true" or empty. */}}
{{- define "tessera.older" -}}
{{- if semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end }}

{{- /* Whether pods are steered: "true" or empty. MutatingAdmissionPolicy is v1 since Kubernetes 1.36. */}}
{{- define "tessera.steering" -}}
{{- if and .Values.controller.enabled .Values.steering.enabled (not (include "tessera.older" .)) -}}
true
{{- end -}}
{{- end }}

{{- /* Whether the controller may allocate claims: "true" or empty. Taints of devices are on by default since Kubernetes 1.36. */}}
{{- define "tessera.managed" -}}
{{- if and .Values.controller.enabled .Values.managed.enabled (not (include "tessera.older" .)) -}}
true
{{- end -}}
{{- end }}

{{- /* Whether extended resources are turned into claims: "true" or empty. */}}
{{- define "tessera.converts" -}}
{{- if and (include "tessera.managed" .) .Values.managed.convertExtendedResources.enabled -}}
true
{{- end -}}
{{- end }}

{{- /* Names of the extended resources that are turned into claims, as JSON. */}}
{{- define "tessera.convertedResources" -}}
{{- $names := .Values.extendedResourceNames -}}
{{- $all := .Values.managed.convertExtendedResources.names -}}
{{- if include "tessera.extendedResources" . -}}
{{- $all = append $all $names.gpu -}}
{{- if $names.timeslice }}{{ $all = append $all $names.timeslice }}{{ end -}}
{{- if eq $names.mig.strategy "mixed" }}
{{- range $names.mig.profiles }}{{ $all = append $all (printf "%s%s" $names.mig.prefix (replace "+" "." .)) }}{{ end }}
{{- end -}}
{{- end -}}
{{- if not $all -}}
{{- fail "managed.convertExtendedResources: no DeviceClass of the chart has an extended resource name; set extendedResourceNames.enabled, or name those of classes of your own in managed.convertExtendedResources.names" -}}
{{- end -}}
{{- $seen := dict -}}
{{- $all = uniq $all -}}
{{- range $all -}}
{{- $slug := include "tessera.resourceSlug" . | replace "." "-" -}}
{{- if gt (len $slug) 58 -}}
{{- fail (printf "managed.convertExtendedResources: %s is too long: a pod's claim is called after it, in 63 characters" .) -}}
{{- end -}}
{{- if hasKey $seen $slug -}}
{{- fail (printf "managed.convertExtendedResources: claims of %s and %s would have the same names" (get $seen $slug) .) -}}
{{- end -}}
{{- $_ := set $seen $slug . -}}
{{- end -}}
{{- toJson $all -}}
{{- end }}

{{- /* Security of a container that needs nothing of the node. */}}
{{- define "tessera.unprivileged" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end }}

{{- /* The image of one program, as `cargo xtask image` names it: (list . "kubelet-plugin"). */}}
{{- define "tessera.image" -}}
{{- $image := (index . 0).Values.image -}}
{{ $image.repository }}/{{ index . 1 }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end }}

{{- /* Where the driver is on the nodes, and where the plugin sees what it tells of the cards: with emulated.hardware all in one
directory. */}}
{{- define "tessera.driverRoot" -}}
{{ ternary .Values.emulated.directory .Values.driverRoot (ne .Values.emulated.hardware "") }}
{{- end }}

{{- define "tessera.sysfsRoot" -}}
{{ ternary "/driver-root/sys" .Values.sysfsRoot (ne .Values.emulated.hardware "") }}
{{- end }}

{{- define "tessera.procRoot" -}}
{{ ternary "/driver-root/proc" .Values.procRoot (ne .Values.emulated.hardware "") }}
{{- end }}

{{- define "tessera.deviceAccess" -}}
{{- $access := .Values.deviceAccess -}}
{{- if eq $access "auto" }}{{ $access = ternary "none" "privileged" (ne (include "tessera.sysfsRoot" .) "") }}{{ end -}}
{{- if and (eq $access "runtime") (not .Values.runtimeClassName) -}}
{{- fail "deviceAccess: runtime needs runtimeClassName, the RuntimeClass of the NVIDIA container runtime (usually nvidia)" -}}
{{- end -}}
{{ $access }}
{{- end }}

{{- /* Values of other charts, which the schema lets through: what to write instead. */}}
{{- define "tessera.refuseValuesOfOthers" -}}
{{- $table := .Files.Get "files/values-of-others.yaml" | fromYaml -}}
{{- $found := list -}}
{{- range $path, $_ := $table -}}
{{- $at := $.Values -}}
{{- $there := true -}}
{{- range $key := splitList "." $path -}}
{{- if not $there -}}
{{- else if and (kindIs "map" $at) (hasKey $at $key) }}{{ $at = get $at $key }}{{ else }}{{ $there = false }}{{ end -}}
{{- end -}}
{{- if $there }}{{ $found = append $found $path }}{{ end -}}
{{- end -}}
{{- $lines := list -}}
{{- range $path := $found -}}
{{- $part := false -}}
{{- range $found }}{{ if hasPrefix (printf "%s." $path) . }}{{ $part = true }}{{ end }}{{ end -}}
{{- if not $part }}{{ $lines = append $lines (printf "  %s: here it is %s" $path (get $table $path)) }}{{ end -}}
{{- end -}}
{{- $repository := .Values.image.repository -}}
{{- if regexMatch "(^|/)(dra-driver-nvidia-gpu|k8s-dra-driver-gpu|k8s-device-plugin|gpu-operator)$|^nvcr[.]io/nvidia" $repository -}}
{{- $lines = append $lines (printf "  image.repository: here it is the prefix of this chart's own images, to which /kubelet-plugin is added; %s is another driver's" $repository) -}}
{{- end -}}
{{- if $lines -}}
{{- fail (printf "values of another chart (NVIDIA's DRA driver, its device plugin or the GPU Operator):\n%s\n`kubectl gpu migrate` writes the values of this chart for a cluster (docs/moving-in.md)" (join "\n" $lines)) -}}
{{- end -}}
{{- end }}

{{- /* Names of the classes of whole cards and of partitions, as a list in CEL. */}}
{{- define "tessera.classNames" -}}
{{- $mig := ternary "mig.nvidia.com" (printf "mig.%s" .Values.driverName) (eq .Values.driverName "gpu.nvidia.com") -}}
{{ list .Values.driverName $mig | toJson }}
{{- end }}

{{- /* Whether classes have extended resource names: "true" or empty. */}}
{{- define "tessera.extendedResources" -}}
{{- $enabled := .Values.extendedResourceNames.enabled -}}
{{- if kindIs "invalid" $enabled }}{{ $enabled = eq .Values.driverName "gpu.nvidia.com" }}{{ end -}}
{{- if $enabled }}true{{ end -}}
{{- end }}

{{- /* Name of the class of an extended resource: of nvidia.com/gpu and gpu.tessera.dev it is nvidia.com-gpu.gpu.tessera.dev. */}}
{{- define "tessera.resourceClassName" -}}
{{- printf "%s.%s" (include "tessera.resourceSlug" (index . 0)) (index . 1) -}}
{{- end }}

{{- /* Name of an extended resource as the begin of an object's name: nvidia.com-gpu. */}}
{{- define "tessera.resourceSlug" -}}
{{- . | lower | replace "/" "-" | replace "_" "-" -}}
{{- end }}

{{- /* Label of DeviceClasses of which one request gets one device (templates/one-share-policy.yaml). */}}
{{- define "tessera.oneShareLabel" -}}
{{ .Values.driverName }}/one-per-request
{{- end }}

{{- /* Names of all classes of extended resources, as JSON. */}}
{{- define "tessera.resourceClassNames" -}}
{{- $names := .Values.extendedResourceNames -}}
{{- $driver := .Values.driverName -}}
{{- $classes := list (include "tessera.resourceClassName" (list $names.gpu $driver)) -}}
{{- if $names.timeslice }}{{ $classes = append $classes (include "tessera.resourceClassName" (list $names.timeslice $driver)) }}{{ end -}}
{{- if eq $names.mig.strategy "mixed" }}
{{- range $names.mig.profiles }}{{ $classes = append $classes (printf "mig-%s.%s" (replace "+" "." .) $driver) }}{{ end }}
{{- end -}}
{{- toJson $classes -}}
{{- end }}

{{- /* Checks that the schema cannot express, or not with a clear message. */}}
{{- define "tessera.validate" -}}
{{- include "tessera.refuseValuesOfOthers" . -}}
{{- range $name := list "driverRoot" "kubeletDirectory" "cdiDirectory" "hookDirectory" "sysfsRoot" "procRoot" -}}
{{- if regexMatch "(^|/)[.][.](/|$)" (get $.Values $name) -}}
{{- fail (printf "%s: '..' is not allowed in %s" $name (get $.Values $name)) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "(^|/)[.][.](/|$)" .Values.emulated.directory -}}
{{- fail (printf "emulated.directory: '..' is not allowed in %s" .Values.emulated.directory) -}}
{{- end -}}
{{- if and .Values.emulated.hardware (or (ne .Values.driverRoot "/") .Values.sysfsRoot .Values.procRoot) -}}
{{- fail "emulated.hardware makes a driver of its own: leave driverRoot, sysfsRoot and procRoot as they are, and say in emulated.directory where it may lie" -}}
{{- end -}}
{{- if regexMatch "(^|/)[.][.](/|$)" .Values.sharing.mps.directory -}}
{{- fail (printf "sharing.mps.directory: '..' is not allowed in %s" .Values.sharing.mps.directory) -}}
{{- end -}}
{{- $names := .Values.extendedResourceNames -}}
{{- range $value, $resource := dict "gpu" $names.gpu "timeslice" $names.timeslice "mig.prefix" $names.mig.prefix -}}
{{- if regexMatch "(^|[.])kubernetes[.]io/|^requests[.]" $resource -}}
{{- fail (printf "extendedResourceNames.%s: %s is Kubernetes' own; choose a name in a domain of yours, or nvidia.com/gpu" $value $resource) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $names.mig.strategy "mixed") (not $names.mig.profiles) -}}
{{- fail "extendedResourceNames.mig: strategy mixed needs profiles, as in [1g.10gb, 3g.40gb]" -}}
{{- end -}}
{{- if and (eq $names.mig.strategy "single") (not $names.mig.pools) (ne (len $names.mig.profiles) 1) -}}
{{- fail "extendedResourceNames.mig: strategy single needs exactly one profile, as in [1g.10gb], or the pools whose partitions are meant" -}}
{{- end -}}
{{- if and $names.mig.pools (ne $names.mig.strategy "single") -}}
{{- fail (printf "extendedResourceNames.mig.pools is for strategy single, and the strategy is %s" $names.mig.strategy) -}}
{{- end -}}
{{- if and (eq $names.mig.strategy "single") (gt (len $names.mig.profiles) 1) -}}
{{- fail "extendedResourceNames.mig: strategy single takes one profile, or none with pools" -}}
{{- end -}}
{{- if eq $names.gpu $names.timeslice -}}
{{- fail (printf "extendedResourceNames: whole cards and time-slices have one name, %s, and kube-scheduler would serve one of both; make a DeviceClass of your own for a name that means more than one kind of device" $names.gpu) -}}
{{- end -}}
{{- end }}
