{{- define "ginnel.selector" -}}
app.kubernetes.io/name: ginnel-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "ginnel.labels" -}}
{{ include "ginnel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
