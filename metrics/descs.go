package metrics

import "github.com/prometheus/client_golang/prometheus"

// all is filled by desc, in the order of this file.
var all []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("shaper_"+name, help, labels, nil)
	all = append(all, d)
	return d
}

var (
	sentBytes = desc("class_sent_bytes_total",
		"Bytes that left the class: of payload from the proxy, of frames from the kernel (engine tc).", "class", "engine", "direction")
	sentPackets = desc("class_sent_packets_total",
		"Datagrams that left the class; from the kernel, frames.", "class", "engine", "direction")
	sentConnections = desc("class_sent_connections_total",
		"Connections that the class let through.", "class", "engine", "direction")
	dropped = desc("class_dropped_total",
		"Items dropped; nobody was told.", "class", "engine", "reason")
	droppedBytes = desc("class_dropped_bytes_total",
		"Payload bytes dropped or discarded; nobody was told.", "class", "engine", "reason")
	refused = desc("class_refused_total",
		"Items refused; the client was told, or its connection closed.", "class", "engine", "reason")
	refusedBytes = desc("class_refused_bytes_total",
		"Payload bytes of refused items.", "class", "engine", "reason")
	overlimits = desc("class_overlimits_total",
		"Items that had to wait for the class's rate.", "class", "engine")
	backlogBytes = desc("class_backlog_bytes",
		"Bytes that wait in the class.", "class", "engine")
	backlogItems = desc("class_backlog_items",
		"Items that wait in the class.", "class", "engine")
	wait = desc("class_wait_seconds",
		"Time that items waited in the class; those that left at once count as 0.", "class", "engine")
	rate = desc("class_rate",
		"Rate in force, in units per second.", "class", "engine", "unit")

	sessions = desc("sessions",
		"Sessions open now.", "listener")
	sessionsTotal = desc("sessions_total",
		"Sessions that ended, by how they ended.", "listener", "result")
	acceptErrors = desc("accept_errors_total",
		"Times that accepting a connection failed, as for want of descriptors; it is tried again.", "listener")
	spliceRefused = desc("splice_refused_total",
		"Directions of sessions whose bytes the kernel would not splice, and that were copied.", "listener")

	reloadOK = desc("config_last_reload_successful",
		"Whether the last attempt to load the policy succeeded.")
	reloadTime = desc("config_last_reload_success_timestamp_seconds",
		"When the policy in force was loaded.")
	configHash = desc("config_hash",
		"The hash of the policy in force, as a label; always 1.", "hash")
	buildInfo = desc("build_info",
		"The versions of shaper and of Go, as labels; always 1.", "version", "goversion")
)
