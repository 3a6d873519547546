package main

import (
	"fmt"
	"strings"
)

// rows returns what the dashboard shows.
func rows() []row {
	return []row{
		{"At a glance", glance()},
		{"Classes", classes()},
		{"Refusals and losses", losses()},
		{"Quotas and keys", quotas()},
		{"Pauses of the provider", provider()},
		{"Sessions", sessions()},
		{"Upstreams", upstreams()},
		{"Fleet", fleet()},
		{"Kernel", kernel()},
		{"Process", process()},
	}
}

// units are what classes count: the unit of Grafana, and that of the metrics.
var units = []struct{ counts, unit string }{
	{"bytes", "Bps"}, {"messages", "cps"}, {"packets", "pps"}, {"connections", "cps"}, {"tokens", "cps"},
}

// sent returns what classes of an engine send per second, if they count the unit.
func sent(counts, engine string) string {
	return fmt.Sprintf(`sum by (instance, class) (rate(shaper_class_sent_%[1]s_total{@class,engine=%[2]q}[@rate])) and on (instance, class) shaper_class_rate{unit=%[1]q,engine=%[2]q}`, counts, engine)
}

// limits returns what classes of an engine may send per second, if they count the unit.
func limits(counts, engine string) string {
	return fmt.Sprintf(`sum by (instance, class) (shaper_class_ceil{@class,unit=%[1]q,engine=%[2]q} or shaper_class_rate{@class,unit=%[1]q,engine=%[2]q})`, counts, engine)
}

// quantile returns a quantile of a histogram. Prometheus has the native histogram, or its classic
// buckets, or both. The native one is finer.
func quantile(q, histogram, by string) string {
	classic := strings.Replace(histogram, "{", "_bucket{", 1)
	return fmt.Sprintf(`histogram_quantile(%[1]s, sum by (%[2]s) (rate(%[3]s[@rate]))) >= 0 or histogram_quantile(%[1]s, sum by (%[2]s, le) (rate(%[4]s[@rate]))) >= 0`, q, by, histogram, classic)
}

const (
	byClass  = "{{instance}} {{class}}"
	waits    = `shaper_class_wait_seconds{@class}`
	lateness = `shaper_pacer_lateness_seconds{@instance}`
	refusals = `sum by (instance, class) (rate(shaper_class_refused_total{@class,engine=""}[@rate]))`
	// roots selects the classes that have none above, to sum over them.
	roots = ` * on (job, instance, class) group_left () shaper_class_info{parent=""}`
)

func glance() []panel {
	stat := func(title, about, unit, bad, expr string) panel {
		return panel{kind: "stat", title: title, about: about, unit: unit, bad: bad, width: 4, queries: []query{{expr, ""}}}
	}
	return []panel{
		stat("Instances", "Daemons that answer.", "", "", `count(shaper_build_info{@instance})`),
		stat("Policy", "1 if all daemons have accepted their last policy file.", "", "below 1", `min(shaper_config_last_reload_successful{@instance})`),
		stat("Sessions", "Open now.", "", "", `sum(shaper_sessions{@instance})`),
		stat("Waiting", "Items that wait in all classes.", "", "", `sum(shaper_class_backlog_items{@instance,engine=""}`+roots+`)`),
		stat("Refused", "Items refused per second, in all classes.", "cps", "above 0", `sum(sum without (reason) (rate(shaper_class_refused_total{@instance,engine=""}[@rate]))`+roots+`)`),
		stat("Upstreams down", "Upstreams of which no address is up.", "", "above 0", `count(shaper_upstream_up{@instance} == 0) or vector(0)`),
	}
}

func classes() []panel {
	all := []panel{
		{kind: "text", width: 24, about: "The figures of a class include those of all classes beneath it. Dashes are limits: the ceil of a class, or else its rate."},
		{kind: "table", title: "Classes now", about: "Per second, in the unit of the class.", width: 24, queries: []query{
			{anyUnit(func(u string) string { return sent(u, "") }), "Sent/s"},
			{anyUnit(func(u string) string { return limits(u, "") }), "Limit/s"},
			{`sum by (instance, class) (shaper_class_backlog_items{@class,engine=""})`, "Waiting"},
			{`max by (instance, class) (shaper_class_oldest_seconds{@class})`, "Oldest"},
			{quantile("0.99", waits, "instance, class"), "p99 wait"},
			{refusals, "Refused/s"},
		}},
		{kind: "timeseries", title: "Share of the limit", about: "What a class sends, against its limit.", unit: "percentunit", width: 24,
			queries: []query{{anyUnit(func(u string) string { return share(u) }), byClass}}},
	}
	for _, u := range units {
		all = append(all, panel{kind: "timeseries", title: "Sent: " + u.counts, unit: u.unit, width: 12, queries: []query{
			{sent(u.counts, ""), byClass}, {limits(u.counts, ""), "limit of " + byClass},
		}})
	}
	return append(all,
		panel{kind: "timeseries", title: "Waiting items", width: 12, queries: []query{{`shaper_class_backlog_items{@class,engine=""}`, byClass}}},
		panel{kind: "timeseries", title: "Waiting bytes", unit: "bytes", width: 12, queries: []query{{`shaper_class_backlog_bytes{@class,engine=""}`, byClass}}},
		panel{kind: "timeseries", title: "Had to wait", about: "Items per second for which the class had no room at once.", unit: "cps", width: 12,
			queries: []query{{`rate(shaper_class_overlimits_total{@class,engine=""}[@rate])`, byClass}}},
		panel{kind: "timeseries", title: "Nothing leaves for", about: "Until the gap, the window, the pause or the closed time ends that holds up all that waits.", unit: "s", width: 12,
			queries: []query{{`shaper_class_held_until_timestamp_seconds{@class} - time() >= 0`, byClass}}},
		panel{kind: "timeseries", title: "Oldest item", about: "How long the item has waited that has waited longest. The waits beneath are of items that have left.", unit: "s", width: 12,
			queries: []query{{`shaper_class_oldest_seconds{@class}`, byClass}}},
		panel{kind: "timeseries", title: "Wait, median", unit: "s", width: 12, queries: []query{{quantile("0.5", waits, "instance, class"), byClass}}},
		panel{kind: "timeseries", title: "Wait, 99th percentile", unit: "s", width: 12, queries: []query{{quantile("0.99", waits, "instance, class"), byClass}}},
	)
}

// anyUnit returns an expression for all classes, made of those for each unit.
func anyUnit(of func(counts string) string) string {
	var all []string
	for _, u := range units {
		all = append(all, "("+of(u.counts)+")")
	}
	return strings.Join(all, " or ")
}

// share returns how much of its limit a class sends.
func share(counts string) string {
	return fmt.Sprintf("(%s) / on (instance, class) (%s > 0)", sent(counts, ""), limits(counts, ""))
}

func losses() []panel {
	by := func(metric string) []query {
		return []query{{`sum by (instance, class, reason) (rate(` + metric + `{@class,engine=""}[@rate])) > 0`, byClass + ": {{reason}}"}}
	}
	return []panel{
		{kind: "timeseries", title: "Refused", about: "The client was told. Items per second, by reason.", unit: "cps", width: 12, queries: by("shaper_class_refused_total")},
		{kind: "timeseries", title: "Dropped", about: "The client was not told. Items per second, by reason.", unit: "cps", width: 12, queries: by("shaper_class_dropped_total")},
		{kind: "timeseries", title: "Bytes refused", unit: "Bps", width: 12, queries: by("shaper_class_refused_bytes_total")},
		{kind: "timeseries", title: "Bytes dropped", unit: "Bps", width: 12, queries: by("shaper_class_dropped_bytes_total")},
		{kind: "timeseries", title: "Shadow", about: "What classes with shadow would do if they were in force. Items per second.", unit: "cps", width: 12, queries: []query{
			{`rate(shaper_shadow_would_delay_total{@class}[@rate])`, byClass + ": delay"}, {`rate(shaper_shadow_would_drop_total{@class}[@rate])`, byClass + ": drop"},
		}},
		{kind: "timeseries", title: "Shadow: wait, 99th percentile", unit: "s", width: 12, queries: []query{{quantile("0.99", `shaper_shadow_wait_seconds{@class}`, "instance, class"), byClass}}},
	}
}

func quotas() []panel {
	return []panel{
		{kind: "timeseries", title: "What remains of a window", about: "In the unit of the class.", width: 12, queries: []query{{`shaper_class_quota_remaining{@class}`, byClass + ": {{window}}"}}},
		{kind: "timeseries", title: "Until all of the window may leave again", about: "Only windows that do not slide.", unit: "s", width: 12, queries: []query{{`shaper_class_quota_resets_timestamp_seconds{@class} - time() >= 0`, byClass + ": {{window}}"}}},
		{kind: "timeseries", title: "Keys, of max_keys", unit: "percentunit", most: 1, width: 12, queries: []query{{`shaper_class_keys{@class} / shaper_class_max_keys{@class}`, byClass}}},
		{kind: "timeseries", title: "Without a bucket of their own", about: "Sessions per second that share a bucket, because max_keys is used up.", unit: "cps", width: 12, queries: []query{{`rate(shaper_class_keys_shared_total{@class}[@rate])`, byClass}}},
	}
}

func provider() []panel {
	return []panel{
		{kind: "timeseries", title: "Said \"too fast\"", about: "Answers of the provider per second, by signal.", unit: "cps", width: 12, queries: []query{{`rate(shaper_upstream_throttled_total{@class}[@rate]) > 0`, byClass + ": {{signal}}"}}},
		{kind: "timeseries", title: "Paused", about: "1 while the class pauses, because its provider said \"too fast\".", most: 1, width: 12, queries: []query{{`shaper_class_paused{@class}`, byClass}}},
		{kind: "timeseries", title: "Share of the rate", about: "Below 1 while the class adapts to its provider, or has found a lower limit.", unit: "percentunit", most: 1, width: 12, queries: []query{{`shaper_class_rate_share{@class}`, byClass}}},
		{kind: "timeseries", title: "Limit that was found", about: "Per second, of classes with learn.", unit: "cps", width: 12, queries: []query{{`shaper_class_learned_rate{@class}`, byClass}}},
		{kind: "timeseries", title: "Without an answer", about: "Requests that were sent, and have no answer yet.", width: 8, queries: []query{{`shaper_class_in_flight{@class}`, byClass}}},
		{kind: "timeseries", title: "Sent again", about: "Refused messages of classes with retry per second, by what became of them.", unit: "cps", width: 8, queries: []query{{`sum by (instance, class, outcome) (rate(shaper_class_retries_total{@class}[@rate])) > 0`, byClass + ": {{outcome}}"}}},
		{kind: "timeseries", title: "Hints", about: "What answers said of the provider's limits per second, by what became of it.", unit: "cps", width: 8, queries: []query{{`rate(shaper_class_hints_total{@class}[@rate]) > 0`, byClass + ": {{fate}}"}}},
	}
}

const byListener = "{{instance}} {{listener}}"

func sessions() []panel {
	return []panel{
		{kind: "timeseries", title: "Open", width: 12, queries: []query{{`shaper_sessions{@instance}`, byListener}}},
		{kind: "timeseries", title: "Ended", about: "Sessions per second, by result.", unit: "cps", width: 12, queries: []query{{`rate(shaper_sessions_total{@instance}[@rate]) > 0`, byListener + ": {{result}}"}}},
		{kind: "timeseries", title: "Bytes", unit: "Bps", width: 12, queries: []query{{`rate(shaper_listener_sent_bytes_total{@instance}[@rate])`, byListener + ": {{direction}}"}}},
		{kind: "timeseries", title: "Faults", about: "Per second. The usual cause of accept errors is a lack of descriptors.", unit: "cps", width: 12, queries: []query{
			{`rate(shaper_accept_errors_total{@instance}[@rate])`, byListener + ": accept"},
			{`rate(shaper_unframed_total{@instance}[@rate]) > 0`, byListener + ": not a message: {{reason}}"},
			{`rate(shaper_splice_refused_total{@instance}[@rate])`, byListener + ": not spliced"},
		}},
		{kind: "timeseries", title: "Stray datagrams", about: "Datagrams of a SOCKS relay or to a transparent listener that were dropped, per second, by reason.", unit: "cps", width: 24, queries: []query{{`rate(shaper_stray_datagrams_total{@instance}[@rate]) > 0`, byListener + ": {{reason}}"}}},
	}
}

const byUpstream = "{{instance}} {{listener}} {{upstream}}"

func upstreams() []panel {
	return []panel{
		{kind: "timeseries", title: "Up", about: "1 if sessions can get an address of the upstream.", most: 1, width: 8, queries: []query{{`shaper_upstream_up{@instance}`, byUpstream}}},
		{kind: "timeseries", title: "Sessions", width: 8, queries: []query{{`shaper_upstream_sessions{@instance}`, byUpstream}}},
		{kind: "timeseries", title: "Failed attempts", about: "Per second, by reason.", unit: "cps", width: 8, queries: []query{{`rate(shaper_upstream_failures_total{@instance}[@rate]) > 0`, byUpstream + ": {{reason}}"}}},
	}
}

const byFleet = "{{instance}} {{fleet}}"

func fleet() []panel {
	return []panel{
		{kind: "timeseries", title: "Store answers", most: 1, width: 6, queries: []query{{`shaper_fleet_up{@instance}`, byFleet}}},
		{kind: "timeseries", title: "Members", width: 6, queries: []query{{`shaper_fleet_members{@instance}`, byFleet}}},
		{kind: "timeseries", title: "Calls", about: "Per second, by result.", unit: "cps", width: 6, queries: []query{{`rate(shaper_fleet_calls_total{@instance}[@rate])`, byFleet + ": {{result}}"}}},
		{kind: "timeseries", title: "Time of a call", unit: "s", width: 6, queries: []query{{`shaper_fleet_call_seconds{@instance}`, byFleet}}},
		{kind: "timeseries", title: "Clock error", about: "Above the headroom, gaps are too short.", unit: "s", width: 8, queries: []query{
			{`shaper_fleet_clock_error_seconds{@instance}`, byFleet}, {`shaper_fleet_headroom_seconds{@instance}`, "limit: headroom of " + byFleet},
		}},
		{kind: "timeseries", title: "On fallback", about: "Share of the time in which a class was without its store.", unit: "percentunit", most: 1, width: 8, queries: []query{{`rate(shaper_fleet_fallback_seconds_total{@class}[@rate])`, byClass}}},
		{kind: "timeseries", title: "Slots", about: "Units per second that a class had from its fleet, by fate.", unit: "cps", width: 8, queries: []query{{`rate(shaper_fleet_slots_total{@class}[@rate])`, byClass + ": {{fate}}"}}},
	}
}

func kernel() []panel {
	return []panel{
		{kind: "timeseries", title: "Sent by the kernel", about: "Bytes of frames.", unit: "Bps", width: 12, queries: []query{
			{sent("bytes", "tc"), byClass}, {limits("bytes", "tc"), "limit of " + byClass},
		}},
		{kind: "timeseries", title: "Dropped by the kernel", about: "Frames per second.", unit: "pps", width: 12, queries: []query{{`sum by (instance, class) (rate(shaper_class_dropped_total{@class,engine="tc"}[@rate]))`, byClass}}},
		{kind: "timeseries", title: "Waiting in the kernel", about: "Frames.", width: 12, queries: []query{{`shaper_class_backlog_items{@class,engine="tc"}`, byClass}}},
		{kind: "timeseries", title: "As the policy says", about: "1 if the kernel is as the policy says. Corrections are objects per second that shaper has put right.", width: 12, queries: []query{
			{`shaper_kernel_in_force{@instance}`, "{{instance}}"}, {`rate(shaper_kernel_corrected_total{@instance}[@rate])`, "{{instance}}: corrections"},
		}},
	}
}

func process() []panel {
	return []panel{
		{kind: "timeseries", title: "Lateness", about: "How much later than allowed items left that had to wait.", unit: "s", width: 8, queries: []query{
			{quantile("0.5", lateness, "instance"), "{{instance}}: median"}, {quantile("0.99", lateness, "instance"), "{{instance}}: 99th percentile"},
		}},
		{kind: "timeseries", title: "Processors in use", width: 8, queries: []query{{`rate(process_cpu_seconds_total{@instance}[@rate]) and on (instance) shaper_build_info`, "{{instance}}"}}},
		{kind: "timeseries", title: "Memory", unit: "bytes", width: 8, queries: []query{{`process_resident_memory_bytes{@instance} and on (instance) shaper_build_info`, "{{instance}}"}}},
		{kind: "timeseries", title: "Descriptors", width: 8, queries: []query{
			{`process_open_fds{@instance} and on (instance) shaper_build_info`, "{{instance}}"}, {`process_max_fds{@instance} and on (instance) shaper_build_info`, "limit of {{instance}}"},
		}},
		{kind: "timeseries", title: "Age of the state file", about: "Only with a state file.", unit: "s", width: 8, queries: []query{{`time() - (shaper_state_last_write_timestamp_seconds{@instance} > 0)`, "{{instance}}"}}},
		{kind: "timeseries", title: "Failed writes of the state file", about: "Per second.", unit: "cps", width: 8, queries: []query{{`rate(shaper_state_write_failures_total{@instance}[@rate])`, "{{instance}}"}}},
		{kind: "table", title: "Versions", about: "The number is always 1.", width: 24, queries: []query{
			{`shaper_config_hash{@instance} * on (job, instance) group_left (version, goversion) shaper_build_info`, "Daemons"},
		}},
	}
}
