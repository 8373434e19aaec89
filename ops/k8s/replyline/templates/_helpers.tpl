{{- define "replyline.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "replyline.labels" -}}
app.kubernetes.io/name: replyline
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "replyline.selector" -}}
app.kubernetes.io/name: replyline
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "replyline.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The ports of all servers that the values name, as JSON: of each URL, and of each host in a list of servers. An
origin or an issuer is a name that no pod asks. The master that sentinels name listens on Redis' own port. */}}
{{- define "replyline.serverPorts" -}}
{{- $defaults := dict "http" 80 "https" 443 "ws" 80 "wss" 443 "redis" 6379 "rediss" 6379 "redis+sentinel" 26379 "rediss+sentinel" 26379 -}}
{{- $given := dict "BOOTSTRAP_SERVERS" .Values.kafka.bootstrapServers "REDIS" .Values.redis.url "KV_REDIS" .Values.kvRedis.url "JWKS" .Values.auth.jwks -}}
{{- $groups := list $given (.Values.settings | default dict) (.Values.gateway.settings | default dict) -}}
{{- range .Values.workers }}{{ $groups = append $groups (.settings | default dict) }}{{ end -}}
{{- /* 443: the package that the demo's model comes from. */}}
{{- $ports := ternary (list 443) list (eq .Values.models.from "prepare") -}}
{{- range $groups }}
{{- range $name, $value := . }}
{{- $servers := hasSuffix "_SERVERS" $name }}
{{- if and (or $servers (contains "://" (toString $value))) (not (regexMatch "_(ORIGINS|ISSUER|AUDIENCE)$" $name)) }}
{{- $scheme := "" }}
{{- range splitList "," (toString $value) }}
{{- if contains "://" . }}{{ $scheme = regexFind "[A-Za-z+]+" . | lower }}{{ end }}
{{- $rest := regexReplaceAll "^[A-Za-z+]*://" (trim .) "" }}
{{- $port := regexFind ":[0-9]+$" (regexReplaceAll "[/?#].*$" $rest "") | trimPrefix ":" }}
{{- if or $port (hasKey $defaults $scheme) }}{{ $ports = append $ports (int ($port | default (get $defaults $scheme))) }}{{ end }}
{{- end }}
{{- if hasSuffix "+sentinel" $scheme }}{{ $ports = append $ports 6379 }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- $ports | uniq | toJson -}}
{{- end }}

{{- define "replyline.cursorSecret" -}}
{{ .Values.cursorSecretName | default (printf "%s-cursor" (include "replyline.name" .)) }}
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

{{- define "replyline.env" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ include "replyline.text" $value | quote }}
{{- end }}
{{- end }}

{{- /* Labels or annotations: Kubernetes takes no value of theirs that is a number or a truth. */}}
{{- define "replyline.texts" -}}
{{- range $name, $value := . }}
{{ $name | quote }}: {{ include "replyline.text" $value | quote }}
{{- end }}
{{- end }}

{{- /* A setting's value as text. Helm reads every number as a float, which is 1e+06 as its text. */}}
{{- define "replyline.text" -}}
{{- if kindIs "float64" . }}{{ toJson . }}{{ else }}{{ toString . }}{{ end -}}
{{- end }}

{{- /* The replica of its own zone that a process reads from. Kubernetes 1.35 and later give a pod its node's zone as a
label; before, it is empty, and the leader is read. */}}
{{- define "replyline.rack" -}}
{{- if .zone }}
- {name: REPLYLINE_KAFKA__CLIENT_RACK, value: {{ .zone | quote }}}
{{- else if .root.Values.kafka.rackFromZone }}
- name: REPLYLINE_KAFKA__CLIENT_RACK
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
{{- end }}
{{- end }}

{{- /* `revision`: the label by which a rolling update's new pods are told from the old ones, and spread by themselves. */}}
{{- define "replyline.spread" -}}
{{- $selector := dict "root" .root "component" .component -}}
{{- $revision := .revision -}}
{{- range .root.Values.topologyKeys }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
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

{{- /* The longest deadline that a client may ask for, in whole seconds. */}}
{{- define "replyline.longestDeadline" -}}
{{- $given := mergeOverwrite (dict) (.root.Values.settings | default dict) (.settings | default dict) -}}
{{- div (add (int64 (get $given "REPLYLINE_PROMISE__MAX_DEADLINE_MS" | default 120000)) 999) 1000 -}}
{{- end }}

{{- /* The kind of a pool's workload. */}}
{{- define "replyline.kindOfPool" -}}
{{- if .static }}StatefulSet{{ else }}Deployment{{ end -}}
{{- end }}

{{- /* A pool with the defaults of what it does not say; it fails with one line where its values contradict each other. */}}
{{- define "replyline.pool" -}}
{{- $default := dict "lane" "champion" "engine" "native" "drainSeconds" 20 "maxUnavailable" "33%" "maxSurge" 1 "static" false -}}
{{- $worker := mergeOverwrite $default .given -}}
{{- $scaling := $worker.autoscaling -}}
{{- if $scaling -}}
{{- if hasKey $worker "replicas" }}{{ fail (printf "workers.%s: replicas and autoscaling exclude each other; take one of them out" .pool) }}{{ end -}}
{{- if $worker.static }}{{ fail (printf "workers.%s: static ids are for fixed pools; take static or autoscaling out" .pool) }}{{ end -}}
{{- if eq (hasKey $scaling "keda") (hasKey $scaling "hpa") }}{{ fail (printf "workers.%s.autoscaling: name one of keda and hpa" .pool) }}{{ end -}}
{{- if gt (int $scaling.min) (int $scaling.max) }}{{ fail (printf "workers.%s.autoscaling: min %d is above max %d" .pool (int $scaling.min) (int $scaling.max)) }}{{ end -}}
{{- if and (hasKey $scaling "hpa") (lt (int $scaling.min) 1) (semverCompare "<1.37.0-0" .root.Capabilities.KubeVersion.Version) }}{{ fail (printf "workers.%s.autoscaling: before Kubernetes 1.37 an HPA keeps one worker at least; set min to 1, or take keda" .pool) }}{{ end -}}
{{- end -}}
{{- $most := ternary ($scaling | default dict).max ($worker.replicas | default 3) (not (empty $scaling)) | int -}}
{{- if gt $most (int .root.Values.topics.partitions) }}{{ fail (printf "workers.%s: %d workers share %d partitions; set topics.partitions to as many at least" .pool $most (int .root.Values.topics.partitions)) }}{{ end -}}
{{- toYaml $worker -}}
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
{{- if eq .Values.models.from "claim" }}
  persistentVolumeClaim: {claimName: {{ required "models.from=claim needs models.claimName" .Values.models.claimName | quote }}, readOnly: true}
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

{{- define "replyline.topicPrefix" -}}
{{ get (.Values.settings | default dict) "REPLYLINE_KAFKA__TOPIC_PREFIX" | default "" }}
{{- end }}

{{- define "replyline.inLane" -}}
{{ .name }}{{ if ne .lane "champion" }}.{{ .lane }}{{ end }}
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
  stabilizationWindowSeconds: {{ .scaling.downSeconds | default 300 }}
  policies: [{type: Pods, value: 1, periodSeconds: 60}]
  {{- if $exact }}
  tolerance: "0"
  {{- end }}
{{- end }}
