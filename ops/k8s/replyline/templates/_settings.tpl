{{- /* Settings as variables of the pods themselves: a rollback, `helm upgrade --atomic` and `kubectl rollout undo` bring
the settings of the pods back with them, and an old pod that restarts has the settings that it began with. */}}

{{- /* The settings of every process, as YAML. */}}
{{- define "replyline.common" -}}
{{- $settings := .Values.settings -}}
{{- $chart := dict
      "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS" .Values.kafka.bootstrapServers
      "REPLYLINE_REDIS__URL" .Values.redis.url
      "REPLYLINE_KV_REDIS__URL" .Values.kvRedis.url
      "REPLYLINE_MODEL__DIR" (printf "/models/%s" .Values.models.dir)
      "REPLYLINE_KAFKA__REQUEST_PARTITIONS" .Values.topics.partitions -}}
{{- range $name, $value := $settings }}{{ $_ := set $chart $name $value }}{{ end -}}
{{- toYaml $chart -}}
{{- end }}

{{- /* The variables of a list of groups: of two with one name the later one. An object is a `valueFrom`, null none. */}}
{{- define "replyline.variables" -}}
{{- $all := dict -}}
{{- range . }}{{ range $name, $value := . }}{{ $_ := set $all $name $value }}{{ end }}{{ end -}}
{{- range $name, $value := $all }}
{{- if kindIs "map" $value }}
- {name: {{ $name }}, valueFrom: {{ toJson $value }}}
{{- else if not (kindIs "invalid" $value) }}
- name: {{ $name }}
  value: {{ include "replyline.text" $value | replace "$" "$$" | quote }} {{- /* Kubernetes reads $$ as $ */}}
{{- end }}
{{- end }}
{{- end }}

{{- /* Labels or annotations: Kubernetes accepts no number or truth as a value. */}}
{{- define "replyline.texts" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ $name | quote }}: {{ include "replyline.text" $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A setting's value as text. Helm reads every number as a float, which is 1e+06 as its text. */}}
{{- define "replyline.text" -}}
{{- if kindIs "float64" . }}{{ toJson . }}{{ else }}{{ toString . }}{{ end -}}
{{- end }}

{{- /* The zone whose replica a process reads from. From Kubernetes 1.35 on a pod has its node's zone as a label; before,
the label is empty, and the process reads from the leader. */}}
{{- define "replyline.rack" -}}
{{- $label := dict "fieldRef" (dict "fieldPath" "metadata.labels['topology.kubernetes.io/zone']") -}}
{{- if .zone }}{{ toYaml (dict "REPLYLINE_KAFKA__CLIENT_RACK" .zone) -}}
{{- else if .root.Values.kafka.rackFromZone }}{{ toYaml (dict "REPLYLINE_KAFKA__CLIENT_RACK" $label) }}{{ end -}}
{{- end }}

{{- /* The longest deadline that a client may ask for, in whole seconds. */}}
{{- define "replyline.longestDeadline" -}}
{{- $given := dict -}}
{{- range . }}{{ range $name, $value := . }}{{ $_ := set $given $name $value }}{{ end }}{{ end -}}
{{- div (add (int64 (get $given "REPLYLINE_PROMISE__MAX_DEADLINE_MS" | default 120000)) 999) 1000 -}}
{{- end }}

{{- define "replyline.topicPrefix" -}}
{{ get .Values.settings "REPLYLINE_KAFKA__TOPIC_PREFIX" | default "" }}
{{- end }}

{{- define "replyline.inLane" -}}
{{ .name }}{{ if ne .lane "champion" }}.{{ .lane }}{{ end }}
{{- end }}

{{- /* The ports of all servers that the values name, as JSON: of each URL, and of each host in a list of servers. An
origin or an issuer is a name that no pod asks. The master that sentinels name listens on Redis' own port. */}}
{{- define "replyline.serverPorts" -}}
{{- $defaults := dict "http" 80 "https" 443 "ws" 80 "wss" 443 "redis" 6379 "rediss" 6379 "redis+sentinel" 26379 "rediss+sentinel" 26379 -}}
{{- $groups := list (include "replyline.common" . | fromYaml) .Values.gateway.settings (dict "JWKS" .Values.auth.jwks) -}}
{{- $args := concat .Values.autoscale.args .Values.rollout.args -}}
{{- range .Values.workers }}
{{- $groups = append $groups .settings }}
{{- $args = concat $args ((.autoscaling | default dict).args | default list) }}
{{- end -}}
{{- range $args }}{{ $groups = append $groups (dict "ARGUMENT" (regexReplaceAll "^--[a-z0-9-]+=" . "")) }}{{ end -}}
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
{{- $port = $port | default (get $defaults $scheme) | default (ternary 9092 0 $servers) | int }}
{{- if $port }}{{ $ports = append $ports $port }}{{ end }}
{{- end }}
{{- if hasSuffix "+sentinel" $scheme }}{{ $ports = append $ports 6379 }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- $ports | uniq | sortAlpha | toJson -}}
{{- end }}
