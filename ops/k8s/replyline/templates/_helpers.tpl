{{- define "replyline.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "replyline.labels" -}}
app.kubernetes.io/name: replyline
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "replyline.selector" -}}
app.kubernetes.io/name: replyline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "replyline.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "replyline.cursorSecret" -}}
{{ .Values.cursorSecretName | default (printf "%s-cursor" (include "replyline.name" .)) }}
{{- end }}

{{- define "replyline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "replyline.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "replyline.env" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{- define "replyline.spread" -}}
{{- $selector := dict "root" .root "component" .component -}}
{{- range .root.Values.topologyKeys }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "replyline.selector" $selector | nindent 6 }}
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
{{- if eq .Values.models.from "claim" }}
  persistentVolumeClaim: {claimName: {{ required "models.from=claim needs models.claimName" .Values.models.claimName }}, readOnly: true}
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
    securityContext: {{- include "replyline.security" . | nindent 6 }}
    resources:
      requests: {cpu: "1", memory: 1Gi}
      limits: {memory: 2Gi}
    volumeMounts:
      - {name: models, mountPath: /models}
      - {name: tmp, mountPath: /tmp}
{{- end }}
{{- end }}
