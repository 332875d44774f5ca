//! Tracing set-up, the Prometheus registry, the /metrics and /healthz listener.
#![forbid(unsafe_code)]
