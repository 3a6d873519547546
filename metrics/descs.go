package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("shaper_"+name, help, labels, nil)
}

// A family is series that both engines may have of a class: those of the kernel are
// told apart by a label.
type family struct{ proxy, kernel *prometheus.Desc }

func both(name, help string, labels ...string) family {
	return family{desc(name, help, labels...), prometheus.NewDesc("shaper_"+name, help, labels, prometheus.Labels{"engine": "tc"})}
}

var (
	classInfo = desc("class_info",
		"The class above each class, as a label, empty for none; always 1. A class has what those beneath it count.", "class", "parent")
	sentBytes = both("class_sent_bytes_total",
		"Bytes that left the class: of payload from the proxy, of frames from the kernel (engine tc).", "class", "direction")
	sentPackets = both("class_sent_packets_total",
		"Datagrams that left the class; from the kernel, frames.", "class", "direction")
	sentMessages = both("class_sent_messages_total",
		"Messages that left the class.", "class", "direction")
	sentConnections = both("class_sent_connections_total",
		"Connections that the class let through.", "class", "direction")
	dropped = both("class_dropped_total",
		"Items dropped; nobody was told.", "class", "reason")
	droppedBytes = both("class_dropped_bytes_total",
		"Payload bytes dropped or discarded; nobody was told.", "class", "reason")
	refused = both("class_refused_total",
		"Items refused; the client was told, or its connection closed.", "class", "reason")
	refusedBytes = both("class_refused_bytes_total",
		"Payload bytes of refused items.", "class", "reason")
	overlimits = both("class_overlimits_total",
		"Items that had to wait for the class's rate.", "class")
	backlogBytes = both("class_backlog_bytes",
		"Bytes that wait in the class.", "class")
	backlogItems = both("class_backlog_items",
		"Items that wait in the class.", "class")
	wait = desc("class_wait_seconds",
		"Time that items waited in the class; those that left at once count as 0.", "class")
	inFlight = desc("class_in_flight",
		"Requests that were sent and are not answered; of classes that count messages.", "class")
	paused = desc("class_paused",
		"Whether the class pauses since its provider said so; of classes that count messages.", "class")
	share = desc("class_rate_share",
		"Share of the rate at which the class is paced, below 1 where it adapts to its provider; of classes that count messages.", "class")
	throttled = desc("upstream_throttled_total",
		"Requests that the provider refused as too fast, by its signal.", "class", "signal")
	keys = desc("class_keys",
		"Keys that have a bucket of their own, or are remembered until nothing depends on it; of classes with per.", "class")
	keysShared = desc("class_keys_shared_total",
		"Sessions that share a bucket since max_keys leaves their key no room; of classes with per.", "class")
	wouldDelay = desc("shadow_would_delay_total",
		"Items that would have waited; of classes with shadow.", "class")
	wouldDrop = desc("shadow_would_drop_total",
		"Items that would have been dropped or refused; of classes with shadow.", "class")
	wouldWait = desc("shadow_wait_seconds",
		"Time that items would have waited; of classes with shadow.", "class")
	rate = both("class_rate",
		"Rate in force, in units per second.", "class", "unit")

	sessions = desc("sessions",
		"Sessions open now.", "listener")
	listenerSent = desc("listener_sent_bytes_total",
		"Payload bytes that left, of all sessions, whether a class counts them or not.", "listener", "direction")
	sessionsTotal = desc("sessions_total",
		"Sessions that ended, by how they ended.", "listener", "result")
	acceptErrors = desc("accept_errors_total",
		"Times that accepting a connection failed, as for want of descriptors; it is tried again.", "listener")
	unframed = desc("unframed_total",
		"Sessions that ended since what came was no message, or might be read in two ways, by why.", "listener", "reason")
	upstreamFailures = desc("upstream_failures_total",
		"Attempts to reach an upstream that failed, by why; then its next address is tried, or the next upstream.", "listener", "upstream", "reason")
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
