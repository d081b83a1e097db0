{{- define "agent.labels" -}}
app.kubernetes.io/name: accelerator-discovery-agent
app.kubernetes.io/component: agent
{{- end -}}

{{- define "inventory.labels" -}}
app.kubernetes.io/name: accelerator-discovery-agent
app.kubernetes.io/component: inventory
{{- end -}}

{{- define "image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The account that holds the controller's rights. */ -}}
{{- define "inventory.account" -}}
{{- if eq .Values.inventory.mode "agents" -}}accelerator-agent{{- else -}}accelerator-inventory{{- end -}}
{{- end -}}

{{- /* The settings file: what the policy must know too, and the rest. Empty where all have their defaults. */ -}}
{{- define "settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- if ne .Values.labelDomain "accelerators.ome.io" -}}{{- $_ := set $settings "label_domain" .Values.labelDomain -}}{{- end -}}
{{- with .Values.formerDomains -}}{{- $_ := set $settings "former_domains" . -}}{{- end -}}
{{- with .Values.compatLabels -}}{{- $_ := set $settings "compat_labels" . -}}{{- end -}}
{{- if $settings -}}{{- toYaml $settings -}}{{- end -}}
{{- end -}}

{{- /* A CEL expression: whether the label key `k` is one that an agent may write. */ -}}
{{- define "policy.ours" -}}
{{- $parts := list -}}
{{- range prepend .Values.formerDomains .Values.labelDomain -}}
{{- $parts = concat $parts (list (printf "k.startsWith('%s/')" .) (printf "k.contains('.%s/')" .)) -}}
{{- end -}}
{{- if has "gfd" .Values.compatLabels -}}
{{- $keys := list -}}
{{- range (list "gpu.count" "gpu.product" "gpu.memory" "gpu.family" "gpu.compute.major" "gpu.compute.minor" "mig.capable" "cuda.driver.major" "cuda.driver.minor" "cuda.driver.rev" "cuda.runtime.major" "cuda.runtime.minor") -}}
{{- $keys = append $keys (printf "'nvidia.com/%s'" .) -}}
{{- end -}}
{{- /* Never a whole prefix: nvidia.com/mig.config re-cuts GPUs, and nvidia.com/gpu.deploy.* takes drivers away. */ -}}
{{- $parts = concat $parts (list (printf "k in [%s]" (join ", " $keys)) "k.matches('^nvidia[.]com/mig-[0-9]+g[.][0-9a-z.]+[.]count$')") -}}
{{- end -}}
{{- join " || " $parts -}}
{{- end -}}
