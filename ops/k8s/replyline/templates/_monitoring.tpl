{{- /* What tells this release's series from another's. */}}
{{- define "replyline.scope" -}}
namespace="{{ .Release.Namespace }}",helm_release="{{ .Release.Name }}"
{{- end }}

{{- /* Prometheus' own selectors find an object by these: kube-prometheus-stack by its `release`. */}}
{{- define "replyline.monitoringLabels" -}}
{{- include "replyline.labels" (merge (dict "Values" (dict "commonLabels" (merge (dict) .Values.monitoring.labels .Values.commonLabels))) .) }}
{{- end }}

{{- /* The rules of ops/alerts: each selector asks for this release alone, and each alert and record names it. */}}
{{- define "replyline.rules" -}}
{{- $rules := .Files.Get "files/rules.yml" | fromYaml -}}
{{- $scope := include "replyline.scope" . -}}
{{- $metric := "\\b((?:replyline_|infer_|process_|model:|replyline:)[a-zA-Z0-9_:]+|up)" -}}
{{- range $rules.groups }}
{{- range .rules }}
{{- $expr := regexReplaceAll (print $metric "\\{") .expr "${1}{@," -}}
{{- $_ := set . "expr" (regexReplaceAll (print $metric "([^a-zA-Z0-9_:{]|$)") $expr "${1}{@}${2}" | replace "{@" (print "{" $scope)) -}}
{{- $_ := set . "labels" (merge (dict "namespace" $.Release.Namespace "helm_release" $.Release.Name) (.labels | default dict)) -}}
{{- end }}
{{- end -}}
{{- toYaml $rules -}}
{{- end }}

{{- /* A dashboard that begins with this release, beside those of others. */}}
{{- define "replyline.dashboard" -}}
{{- $board := .text | fromJson -}}
{{- $release := .root.Release -}}
{{- $_ := set $board "uid" (printf "%s-%s" $board.uid (printf "%s/%s" $release.Namespace $release.Name | sha256sum | trunc 8)) -}}
{{- $_ := set $board "title" (printf "%s · %s/%s" $board.title $release.Namespace $release.Name) -}}
{{- range $board.templating.list }}
{{- $own := get (dict "namespace" $release.Namespace "release" $release.Name) .name -}}
{{- if $own }}{{ $_ := set . "current" (dict "text" $own "value" $own) }}{{ end -}}
{{- end -}}
{{- toPrettyJson $board -}}
{{- end }}
