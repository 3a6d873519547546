package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("shaper_"+name, help, labels, nil)
}

// A family describes a metric of a class that both engines, the proxy and the kernel, may
// have. Series of the kernel have the label engine.
type family struct{ proxy, kernel *prometheus.Desc }

func both(name, help string, labels ...string) family {
	return family{desc(name, help, labels...), prometheus.NewDesc("shaper_"+name, help, labels, prometheus.Labels{"engine": "tc"})}
}

var (
	classInfo = desc("class_info",
		"Always 1; the label parent is the class above, or empty. A class also counts what the classes below it count.", "class", "parent")
	sentBytes = both("class_sent_bytes_total",
		"Bytes that left the class. The proxy counts payload; the kernel (engine tc) counts frames.", "class", "direction")
	sentPackets = both("class_sent_packets_total",
		"Datagrams that left the class. The kernel (engine tc) counts frames.", "class", "direction")
	sentMessages = both("class_sent_messages_total",
		"What the messages that left the class cost, in messages: an SMS of three parts may count as three. shaper_class_sent_requests_total counts each once.", "class", "direction")
	sentRequests = desc("class_sent_requests_total",
		"Messages that left the class, each counted once, whatever it costs. One that was sent again counts again.", "class", "direction")
	sentConnections = both("class_sent_connections_total",
		"Connections that the class let through.", "class", "direction")
	sentTokens = both("class_sent_tokens_total",
		"Tokens charged for what left the class, before the settlement gives some back. Only classes that count tokens have it.", "class", "direction")
	dropped = both("class_dropped_total",
		"Items dropped. The client was not told.", "class", "reason")
	droppedBytes = both("class_dropped_bytes_total",
		"Payload bytes dropped or discarded. The client was not told.", "class", "reason")
	refused = both("class_refused_total",
		"Items refused. The client was told, or its connection was closed.", "class", "reason")
	refusedBytes = both("class_refused_bytes_total",
		"Payload bytes of refused items.", "class", "reason")
	overlimits = both("class_overlimits_total",
		"Items that had to wait for the rate of the class.", "class")
	backlogBytes = both("class_backlog_bytes",
		"Bytes that wait in the class.", "class")
	backlogItems = both("class_backlog_items",
		"Items that wait in the class.", "class")
	oldest = desc("class_oldest_seconds",
		"How long the item has waited that has waited longest in the class; 0 if nothing waits.", "class")
	wait = desc("class_wait_seconds",
		"How long items waited in the class. An item that left at once counts as 0.", "class")
	heldTime = desc("class_held_until_timestamp_seconds",
		"Until when nothing of what waits in the class leaves, for a window, a rate, a pause or a schedule; 0 if nothing waits, if something waits only for its turn, or if nobody knows until when.", "class")
	inFlight = desc("class_in_flight",
		"Requests that were sent and have no answer yet; only for classes that count messages or tokens.", "class")
	paused = desc("class_paused",
		"1 if the class is paused because its provider said \"too fast\", else 0; only for classes that count messages or tokens.", "class")
	share = desc("class_rate_share",
		"Share of its rate at which the class is paced, below 1 while it adapts to its provider; only for classes that count messages or tokens.", "class")
	learned = desc("class_learned_rate",
		"Limit of the provider that the class has found below its rate, in messages per second, also in the shadow; only while it has found one.", "class")
	throttled = desc("upstream_throttled_total",
		"Requests that the provider refused as too fast, by the signal in its answer.", "class", "signal")
	retried = desc("class_retries_total",
		"Messages of a class with retry that the provider refused as too fast, by the signal in its answer and by what became of them.", "class", "signal", "outcome")
	hinted = desc("class_hints_total",
		"Limits that answers of the provider have told, to a class with hints, by what became of them.", "class", "fate")
	keys = desc("class_keys",
		"Keys that have a bucket of their own, or are remembered; only for classes with per.", "class")
	maxKeys = desc("class_max_keys",
		"How many keys may have a bucket of their own; only for classes with per.", "class")
	quotaRemaining = desc("class_quota_remaining",
		"What may still leave in the window, in units of the class; only for windows of a minute or longer, of classes that have neither per nor shared.", "class", "window")
	quotaResets = desc("class_quota_resets_timestamp_seconds",
		"When the window ends and all of it may leave again; the present if it may. A window that slides has no end.", "class", "window")
	keysShared = desc("class_keys_shared_total",
		"Sessions that share a bucket because max_keys leaves no bucket for their key; only for classes with per.", "class")
	wouldDelay = desc("shadow_would_delay_total",
		"Items that would have had to wait; only for classes with shadow.", "class")
	wouldDrop = desc("shadow_would_drop_total",
		"Items that would have been dropped or refused; only for classes with shadow.", "class")
	wouldWait = desc("shadow_wait_seconds",
		"How long items would have waited; only for classes with shadow.", "class")
	rate = both("class_rate",
		"Rate in force, in units per second.", "class", "unit")
	ceil = both("class_ceil",
		"What the class reaches by borrowing, in units per second; only for classes with ceil.", "class", "unit")

	sessions = desc("sessions",
		"Sessions open now.", "listener")
	listenerSent = desc("listener_sent_bytes_total",
		"Payload bytes sent by all sessions of the listener, with and without a class.", "listener", "direction")
	sessionsTotal = desc("sessions_total",
		"Sessions that ended, by result.", "listener", "result")
	acceptErrors = desc("accept_errors_total",
		"Failures to accept a connection, for example for lack of descriptors. Each is retried.", "listener")
	unframed = desc("unframed_total",
		"Sessions that ended because a peer sent something that is not a message, or is ambiguous.", "listener", "reason")
	stray = desc("stray_datagrams_total",
		"Datagrams that a listener whose clients say where they want to go has dropped before they had a class, by the reason.", "listener", "reason")
	upstreamFailures = desc("upstream_failures_total",
		"Failed attempts to reach an upstream. After each, the next address or upstream is tried.", "listener", "upstream", "reason")
	upstreamUp = desc("upstream_up",
		"1 if sessions can get one of the addresses of the upstream, as far as is known; 0 if all are ejected, down or of a family that bind does not have, or its name does not resolve.", "listener", "upstream")
	upstreamSessions = desc("upstream_sessions",
		"Sessions that are open at the upstream, or on their way there.", "listener", "upstream")
	spliceRefused = desc("splice_refused_total",
		"Directions of sessions that were copied because the kernel refused to splice them.", "listener")

	lateness = desc("pacer_lateness_seconds",
		"How much later than allowed items left that had to wait. Each is lost to a class that counts gaps.")

	reloadOK = desc("config_last_reload_successful",
		"Whether the last attempt to load the policy succeeded.")
	reloadTime = desc("config_last_reload_success_timestamp_seconds",
		"When the policy in force was loaded.")
	stateTime = desc("state_last_write_timestamp_seconds",
		"When the state file was written last; 0: never yet. Only with a state file.")
	stateFailures = desc("state_write_failures_total",
		"Writes of the state file that failed. Each is tried again. Only with a state file.")
	fleetUp = desc("fleet_up",
		"1 if the store of the fleet answers, for all shared classes.", "fleet")
	fleetMembers = desc("fleet_members",
		"Members of the fleet, of the class that has most.", "fleet")
	fleetCalls = desc("fleet_calls_total",
		"Calls to the store, by result.", "fleet", "result")
	fleetCallTime = desc("fleet_call_seconds",
		"How long recent calls to the store have taken, rather more than less.", "fleet")
	fleetClockError = desc("fleet_clock_error_seconds",
		"How far slots may be wrong, because the store's clock is known only so well.", "fleet")
	fleetHeadroom = desc("fleet_headroom_seconds",
		"How late a slot may be used, of the class in which that is the least. A clock error above it makes gaps too short.", "fleet")
	fleetFallback = desc("fleet_fallback_seconds_total",
		"For how long the store was away, of the limit of the class for which that is the longest.", "class")
	fleetSlots = desc("fleet_slots_total",
		"Units that the class had from its fleet, by fate: used, expired, or returned.", "class", "fate")

	kernelInForce = desc("kernel_in_force",
		"1 if the kernel was as the policy says when shaper looked last, or has made it so; 0 if that failed. Only for policies with apply = true.")
	kernelCorrected = desc("kernel_corrected_total",
		"Qdiscs, classes and filters that shaper has put right since the start, because something else had changed them or their device came back. Only for policies with apply = true.")

	configHash = desc("config_hash",
		"Always 1; the label is the hash of the policy in force.", "hash")
	buildInfo = desc("build_info",
		"Always 1; the labels are the versions of shaper and of Go.", "version", "goversion")
)
