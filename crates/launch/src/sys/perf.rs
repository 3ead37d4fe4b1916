//! perf_event_open.
