//! Counters, gauges and histograms with the Prometheus text format.
#![forbid(unsafe_code)]
