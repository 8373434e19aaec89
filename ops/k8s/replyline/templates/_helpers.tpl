{{- define "replyline.labels" -}}
app.kubernetes.io/name: replyline
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- include "replyline.texts" .Values.commonLabels }}
{{- end }}

{{- define "replyline.selector" -}}
app.kubernetes.io/name: replyline
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* A pod's labels. Its selector has no others: Kubernetes lets no upgrade change a selector. */}}
{{- define "replyline.podLabels" -}}
{{- include "replyline.selector" . }}
{{- include "replyline.texts" .root.Values.commonLabels }}
{{- end }}

{{- define "replyline.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* What the pods of every process have in common. No variables for Services: one called like the product has
variables that begin as its settings do. */}}
{{- define "replyline.pod" -}}
enableServiceLinks: false
{{- with include "replyline.securityContext" .Values.podSecurityContext }}
securityContext: {{- . | nindent 2 }}
{{- end }}
{{- with concat (.Values.image.pullSecrets | default list) ((.Values.global).imagePullSecrets | default list) }}
imagePullSecrets:
{{- range . }}
  - name: {{ if kindIs "string" . }}{{ . | quote }}{{ else }}{{ .name | quote }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "replyline.security" -}}
{{- with include "replyline.securityContext" .Values.securityContext -}}
securityContext: {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Empty where no key has a value. */}}
{{- define "replyline.securityContext" -}}
{{- $kept := dict -}}
{{- range $key, $value := . }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $kept $key $value }}{{ end }}{{ end -}}
{{- if $kept }}{{ toYaml $kept }}{{ end -}}
{{- end }}

{{- /* `revision`: the label by which a rolling update's new pods are told from the old ones, and spread by themselves. */}}
{{- define "replyline.spread" -}}
{{- $selector := dict "root" .root "component" .component -}}
{{- $revision := .revision -}}
{{- $required := .root.Values.requiredTopologyKeys -}}
{{- range concat $required (without .root.Values.topologyKeys $required) | uniq }}
- maxSkew: 1
  topologyKey: {{ . | quote }}
  whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" (has . $required) }}
  matchLabelKeys: [{{ $revision }}]
  labelSelector:
    matchLabels: {{- include "replyline.selector" $selector | nindent 6 }}
{{- end }}
{{- end }}

{{- /* Each secret that is named is a folder /secrets/NAME in every process. */}}
{{- define "replyline.secretMounts" -}}
{{- range $name, $_ := .Values.secrets }}
- {name: secret-{{ $name }}, mountPath: /secrets/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "replyline.secretVolumes" -}}
{{- range $name, $secret := .Values.secrets }}
- name: secret-{{ $name }}
  secret: {secretName: {{ $secret | quote }}}
{{- end }}
{{- end }}

{{- define "replyline.probes" -}}
startupProbe:
  httpGet: {path: /health, port: metrics}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /health, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 4
readinessProbe:
  httpGet: {path: /ready, port: metrics}
  periodSeconds: 3
  timeoutSeconds: 3
{{- end }}

{{- define "replyline.modelsVolume" -}}
- name: models
{{- if eq .root.Values.models.from "claim" }}
  persistentVolumeClaim: {claimName: {{ .root.Values.models.claimName | quote }}{{ if not .writes }}, readOnly: true{{ end }}}
{{- else }}
  emptyDir: {}
{{- end }}
- name: tmp
  emptyDir: {}
{{- end }}

{{- define "replyline.prepare" -}}
{{- if eq .Values.models.from "prepare" }}
initContainers:
  - name: model
    image: {{ include "replyline.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [model, prepare, --dir, /models]
    {{- include "replyline.security" . | nindent 4 }}
    resources:
      requests: {cpu: "1", memory: 1Gi}
      limits: {memory: 2Gi}
    volumeMounts:
      - {name: models, mountPath: /models}
      - {name: tmp, mountPath: /tmp}
{{- end }}
{{- end }}

{{- /* Up at once. Down only what has been too many for `downSeconds`, a worker a minute. Of more than ten workers the
HPA's own tolerance of 10 % would hide one that is wanted; a cluster before 1.35 has no other. */}}
{{- define "replyline.behavior" -}}
{{- $exact := semverCompare ">=1.35.0-0" .root.Capabilities.KubeVersion.Version -}}
scaleUp:
  stabilizationWindowSeconds: 0
  selectPolicy: Max
  policies: [{type: Pods, value: {{ .scaling.max }}, periodSeconds: 15}]
  {{- if $exact }}
  tolerance: "0"
  {{- end }}
scaleDown:
  stabilizationWindowSeconds: {{ hasKey .scaling "downSeconds" | ternary .scaling.downSeconds 300 }}
  policies: [{type: Pods, value: 1, periodSeconds: 60}]
  {{- if $exact }}
  tolerance: "0"
  {{- end }}
{{- end }}
