{{- /* Every template that reads the values begins with `replyline.ready`. */}}

{{- /* Fill in what is absent or null from values.yaml: helm takes a default away where its key is given as null. Null keeps
its own meaning for a security context (none) and a pool (not there); for a list or a map of your own keys it is empty. */}}
{{- define "replyline.ready" -}}
{{- $defaults := omit (.Files.Get "files/values.yaml" | fromYaml) "podSecurityContext" "securityContext" -}}
{{- if not (kindIs "invalid" .Values.workers) }}{{ $defaults = omit $defaults "workers" }}{{ end -}}
{{- include "replyline.fill" (list .Values $defaults) -}}
{{- include "replyline.agree" . -}}
{{- end }}

{{- /* Set in the first of two maps what the second says and is not null. */}}
{{- define "replyline.given" -}}
{{- $into := index . 0 -}}
{{- range $name, $value := index . 1 -}}
{{- if has $name (list "autoscaling" "keda" "hpa") | and (kindIs "map" $value) }}
{{- $kept := dict }}{{ include "replyline.given" (list $kept $value) }}{{ $_ := set $into $name $kept }}
{{- else if not (kindIs "invalid" $value) }}{{ $_ := set $into $name $value }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "replyline.fill" -}}
{{- $given := index . 0 -}}
{{- $free := list "settings" "secrets" "resources" "nodeSelector" "annotations" "grpcAnnotations" "labels" "commonLabels" -}}
{{- range $name, $default := index . 1 -}}
{{- $absent := kindIs "invalid" (ternary (index $given $name) nil (hasKey $given $name)) -}}
{{- if $absent -}}
{{- $_ := set $given $name (ternary dict $default (has $name $free)) -}}
{{- if kindIs "slice" $default }}{{ $_ := set $given $name list }}{{ end -}}
{{- else if and (kindIs "map" $default) (not (has $name $free)) (ne $name "workers") -}}
{{- include "replyline.fill" (list (index $given $name) $default) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Fail with one line where values contradict each other. */}}
{{- define "replyline.agree" -}}
{{- $gateway := .Values.gateway -}}
{{- range $pool, $given := .Values.workers -}}
{{- if kindIs "invalid" $given }}{{ $_ := unset $.Values.workers $pool }}{{ end -}}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$" $pool) }}{{ fail (printf "workers.%s: a pool's name is part of its pods': write 20 characters at most, of a to z, 0 to 9 and -" $pool) }}{{ end -}}
{{- include "replyline.variableNames" (list (printf "workers.%s.settings" $pool) ($given | default dict).settings) -}}
{{- end -}}
{{- if not .Values.workers }}{{ fail "workers: every pool is null; name one" }}{{ end -}}
{{- include "replyline.variableNames" (list "settings" .Values.settings) -}}
{{- include "replyline.variableNames" (list "gateway.settings" .Values.gateway.settings) -}}
{{- range $name, $_ := .Values.secrets -}}
{{- if or (has $name (list "auth" "cursor")) (not (regexMatch "^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$" $name)) }}{{ fail (printf "secrets.%s: it is a folder's name: write 32 characters at most, of a to z, 0 to 9 and -; auth and cursor are taken" $name) }}{{ end -}}
{{- end -}}
{{- range $where, $labels := dict "commonLabels" .Values.commonLabels "monitoring.labels" .Values.monitoring.labels -}}
{{- range $name, $_ := $labels -}}
{{- if or (eq $name "helm.sh/chart") (regexMatch "^app[.]kubernetes[.]io/(name|instance|version|component|managed-by)$" $name) }}{{ fail (printf "%s.%s: the chart sets it; take it out" $where $name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- /* The pools of a lane share its topics' partitions. */}}
{{- $served := dict -}}
{{- range $pool, $given := .Values.workers -}}
{{- $worker := include "replyline.pool" (dict "root" $ "pool" $pool "given" $given) | fromYaml -}}
{{- range $worker.buckets -}}
{{- $topic := printf "lane %s, %s" $worker.lane . -}}
{{- $sum := add (get $served $topic | default 0) (int $worker.least) -}}
{{- if gt (int $sum) (int $.Values.topics.partitions) }}{{ fail (printf "workers.%s: with this pool %d workers share %d partitions (%s); set topics.partitions to as many at least" $pool $sum (int $.Values.topics.partitions) $topic) }}{{ end -}}
{{- $_ := set $served $topic $sum -}}
{{- end -}}
{{- end -}}
{{- $most := get .Values.settings "REPLYLINE_KAFKA__REPLY_PARTITIONS" | default 8 | int -}}
{{- $scaling := $gateway.autoscaling -}}
{{- $gateways := int $gateway.replicas -}}
{{- if $scaling -}}
{{- if gt (int $scaling.min) (int $scaling.max) }}{{ fail (printf "gateway.autoscaling: min %d is above max %d" (int $scaling.min) (int $scaling.max)) }}{{ end -}}
{{- if not (($gateway.resources).requests).cpu }}{{ fail "gateway.autoscaling: cpuPercent is a share of gateway.resources.requests.cpu; set it" }}{{ end -}}
{{- $gateways = int $scaling.max -}}
{{- end -}}
{{- if gt $gateways $most }}{{ fail (printf "gateway.%s: %d gateways share %d reply partitions; set REPLYLINE_KAFKA__REPLY_PARTITIONS in settings to as many at least" (ternary "autoscaling.max" "replicas" (not (empty $scaling))) $gateways $most) }}{{ end -}}
{{- if and (gt $gateways 1) (not .Values.cursorSecretName) }}{{ fail "cursorSecretName: name a secret that all gateways sign cursors with; make it by: kubectl create secret generic chat-cursor --from-literal=cursor=$(openssl rand -hex 32)" }}{{ end -}}
{{- if and (eq .Values.auth.mode "token") (not (or .Values.auth.jwks .Values.auth.secretName)) }}{{ fail "auth.mode: token needs auth.jwks, an address, or auth.secretName, a secret with the key `secret`" }}{{ end -}}
{{- if and (eq .Values.models.from "claim") (not .Values.models.claimName) }}{{ fail "models.claimName: models.from=claim needs the name of a claim" }}{{ end -}}
{{- end }}

{{- /* The settings that the chart itself makes of values, since its other objects depend on them too. */}}
{{- define "replyline.ownSettings" -}}
REPLYLINE_AUTH__JWKS: write it as auth.jwks
REPLYLINE_AUTH__MODE: write it as auth.mode
REPLYLINE_GATEWAY__DRAIN_S: write it as gateway.drainSeconds
REPLYLINE_GATEWAY__GRPC_PORT: the port is the chart's; write gateway.grpc
REPLYLINE_GATEWAY__HOST: write it as listen
REPLYLINE_GATEWAY__HTTP_PORT: the port is the chart's; leave it out
REPLYLINE_GATEWAY__METRICS_HOST: write it as listen
REPLYLINE_GATEWAY__METRICS_PORT: the port is the chart's; leave it out
REPLYLINE_GATEWAY__PORT: the port is the chart's; leave it out
REPLYLINE_GATEWAY__REPLY_PARTITION: each pod has its own number; leave it out
REPLYLINE_KAFKA__REQUEST_PARTITIONS: write it as topics.partitions
REPLYLINE_WORKER__BUCKETS: write it as buckets of the pool
REPLYLINE_WORKER__DRAIN_S: write it as drainSeconds of the pool
REPLYLINE_WORKER__ENGINE: write it as engine of the pool
REPLYLINE_WORKER__LANE: write it as lane of the pool
REPLYLINE_WORKER__METRICS_HOST: write it as listen
REPLYLINE_WORKER__METRICS_PORT: the port is the chart's; leave it out
REPLYLINE_WORKER__POOL: it is the name of the pool; leave it out
{{- end }}

{{- define "replyline.variableNames" -}}
{{- $where := index . 0 -}}
{{- $own := include "replyline.ownSettings" . | fromYaml -}}
{{- range $name, $_ := index . 1 -}}
{{- with get $own $name }}{{ fail (printf "%s.%s: %s" $where $name .) }}{{ end -}}
{{- if not (regexMatch "^[A-Z][A-Z0-9_]*$" $name) }}{{ fail (printf "%s.%s: write a variable's name, in capitals: REPLYLINE_GROUP__NAME of docs/settings.md" $where $name) }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* A release's own name, or with `suffix` that of one of its objects: 43 characters at most, so that the names of its
pods (17 more), and a worker's id by them, are whole. A Service's name has no dot and begins with a letter. */}}
{{- define "replyline.named" -}}
{{- $release := .root.Release.Name -}}
{{- $name := regexReplaceAll "^([0-9])" (replace "." "-" $release) "replyline-${1}" -}}
{{- $suffix := ternary (printf "-%s" .suffix) "" (not (empty .suffix)) -}}
{{- $room := sub 43 (len $suffix) | int -}}
{{- if or (gt (len $name) $room) (contains "." $release) -}}
{{- $name = printf "%s-%s" (trunc (int (sub $room 7)) $name | trimSuffix "-") ($release | sha256sum | trunc 6) -}}
{{- end -}}
{{- $name }}{{ $suffix -}}
{{- end }}

{{- define "replyline.name" -}}
{{- include "replyline.named" (dict "root" . "suffix" "") -}}
{{- end }}

{{- /* The kind of a pool's workload. */}}
{{- define "replyline.kindOfPool" -}}
{{- if .static }}StatefulSet{{ else }}Deployment{{ end -}}
{{- end }}

{{- /* A pool with the defaults of what it does not say; it fails with one line where its values contradict each other. */}}
{{- define "replyline.pool" -}}
{{- $partitions := int .root.Values.topics.partitions -}}
{{- $worker := dict "lane" "champion" "engine" "native" "drainSeconds" 20 "maxSurge" 1 "static" false "settings" dict "buckets" (list "short" "medium" "long") -}}
{{- include "replyline.given" (list $worker .given) -}}
{{- $scaling := $worker.autoscaling -}}
{{- if $scaling -}}
{{- if hasKey $worker "replicas" }}{{ fail (printf "workers.%s: replicas and autoscaling exclude each other; take one of them out" .pool) }}{{ end -}}
{{- if $worker.static }}{{ fail (printf "workers.%s: static ids are for fixed pools; take static or autoscaling out" .pool) }}{{ end -}}
{{- if eq (hasKey $scaling "keda") (hasKey $scaling "hpa") }}{{ fail (printf "workers.%s.autoscaling: name one of keda and hpa" .pool) }}{{ end -}}
{{- if gt (int $scaling.min) (int $scaling.max) }}{{ fail (printf "workers.%s.autoscaling: min %d is above max %d" .pool (int $scaling.min) (int $scaling.max)) }}{{ end -}}
{{- if and (hasKey $scaling "hpa") (lt (int $scaling.min) 1) (semverCompare "<1.37.0-0" .root.Capabilities.KubeVersion.Version) }}{{ fail (printf "workers.%s.autoscaling: before Kubernetes 1.37 an HPA keeps one worker at least; set min to 1, or take keda" .pool) }}{{ end -}}
{{- $_ := set $worker "least" (int $scaling.min) -}}
{{- $_ := set $worker "most" (int $scaling.max) -}}
{{- else -}}
{{- $_ := set $worker "replicas" (hasKey $worker "replicas" | ternary $worker.replicas 3) -}}
{{- $_ := set $worker "least" (int $worker.replicas) -}}
{{- $_ := set $worker "most" (int $worker.replicas) -}}
{{- end -}}
{{- if gt (int $worker.most) $partitions }}{{ fail (printf "workers.%s: %d workers share %d partitions; set topics.partitions to as many at least" .pool (int $worker.most) $partitions) }}{{ end -}}
{{- include "replyline.down" $worker -}}
{{- toYaml $worker -}}
{{- end }}

{{- /* Set how many of a pool may be away: in a rolling update (`maxUnavailable`) and by evictions (`evictable`). A third,
or the share that is given, as a number rounded down: Kubernetes rounds a share up for a StatefulSet and for evictions. At
least one, or none would ever be replaced; but none where a new pod starts first. */}}
{{- define "replyline.down" -}}
{{- $given := hasKey . "maxUnavailable" | ternary (toString .maxUnavailable) "" -}}
{{- $third := div (int .least) 3 -}}
{{- $down := $third -}}
{{- if hasSuffix "%" $given }}{{ $down = div (mul (int .least) (trimSuffix "%" $given | int)) 100 -}}
{{- else if $given }}{{ $down = int $given }}{{ end -}}
{{- $surges := and (not .static) (not (has (toString .maxSurge) (list "0" "0%"))) -}}
{{- $_ := set . "evictable" (max 1 $down) -}}
{{- $_ := set . "maxUnavailable" (ternary $down (max 1 $down) $surges) -}}
{{- if and .autoscaling (or (not $given) (hasSuffix "%" $given)) }}{{ $_ := set . "maxUnavailable" ($given | default "33%") }}{{ end -}}
{{- end }}
