// Package shaper holds the classes. It decides which item leaves next, and when.
//
// An item enters a Class. It leaves when the limiter of the class and the limiters of all
// classes above let it leave. Packages leaky and limit have the arithmetic. This package
// brings the arithmetic together with the clock, which is the pacers of a Shaper, and with
// the goroutines that wait.
//
// Files call downwards only, in this order:
//
//	waiter        a goroutine waits until its items may leave
//	flow          one direction of a session
//	keep          the budgets of all classes outlive the process
//	beneath       what waits in a class and in those beneath it, for people
//	shaper        the live classes of a policy, and how a reload changes them
//	gone          classes that the policy has no more, in case they come back
//	new           makes classes, trees and trials from policies
//	status        what a class does and why, for people
//	trial_shadow  the shadow of a class, which runs in a trial of its own
//	guest         a session in a trial
//	source        one direction of a session in a trial
//	copy          stands in a trial for what really comes
//	trial         computes what would happen, event by event
//	why           why a class waits, and until when
//	rehearsal     a copy of a tree, which shows what will leave
//	pacers        spread trees over pacers
//	pacer         wakes trees at their departure times
//	lateness      how late wake-ups are
//	timer_linux   the pacer's clock
//	timer         the same on Go's own timers
//	budget        what a class keeps in a ledger, and goes on from
//	set           puts another policy in force for a class and its buckets
//	kept          what a ledger keeps of keys that nobody uses
//	enter         items enter, leave and give up
//	feedback      the answers and signals of a provider
//	hint          what answers say of the limits of the provider
//	estimate      when there will be room, and when all will have left
//	share         a class whose budget several processes share
//	hold          what items wait for
//	buckets       how many buckets there are, and which is free first
//	walk          a class with its buckets, their groups, and what waits in them
//	keys          a bucket for each client
//	quiet         messages to recipients that have quiet hours wait in groups
//	beginning     how the bucket of a key begins
//	common        the bucket of keys for which there is no room, and how they leave it
//	visitors      which keys have been in the common bucket
//	table         the keys of a class: which of them have a bucket, and what is remembered of the others
//	entry         what a class has of one key, in one place
//	index         finds a key among a million others
//	reviews       when to look whether a key may be forgotten
//	messages      what a class does with messages and their answers
//	class         the class: its policy, and all that belongs to it
//	permit        which sessions may be open
//	above         the keys of a class beneath one with buckets
//	shadow        what a class asks of its shadow
//	finding       what a class has learned, as a ledger keeps it
//	lease         a limiter that lets out what a ledger has granted
//	overdue       items that turn out to wait for longer than max_wait, as a fleet has said since they came
//	shared        a limiter that lets out what a fleet has granted
//	lent          stands for a shared limiter in a copy of its tree, and lets out what a fleet is expected to grant
//	yield         what a shared class leaves to other members of the fleet
//	quota         what remains of long windows
//	record        a limiter as a ledger keeps it
//	limits        the limits that the members of a fleet agree on, and what a member has of them
//	count         counters, for a class and those above it
//	forecast      estimates the departure of one item
//	race          when an item leaves that competes with all that waits on its path
//	tail          what waits in the queue of a class before its last item
//	turns         what has its turn before an item
//	standstill    what waits in a class and cannot leave before a time
//	group         the groups of a class
//	charge        charges a departure to each class on its path
//	ascent        since when classes are above another one
//	tree          the place of a class in its tree, and the lock of the tree
//	feed, reserve  who is next among those that compete for a class, and for whom the class stays free
//	ring          turns, by weight
//	gate          what one class allows
//	regulator     the limiter of a class, and the rate at which it runs
//	throttle      what the signals of a provider take away
//	witness       reports in the shadow what a provider accepts
//	learner       finds a limit by what a provider refuses
//	pace          how fast a class sends, computed from its policy
//	restraint     one limit of a pace
//	line          what waits
//	alarms        moments, the earliest first
//	item          what leaves as one, and what it costs
//
// A rate goes from the policy to its limiter through Shaper.Apply, Class.Set, paceOf,
// Class.put and regulator.takeOver. Each limit of a class is a restraint, and has its limiter.
package shaper
