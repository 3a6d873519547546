// Package shaper holds the classes: which item leaves next, and when.
//
// Items enter a Class and leave it when its limiter allows, and those of the
// classes above it. The arithmetic is that of packages leaky and limit; here it
// meets the clock, in one pacer for each Shaper, and the goroutines that
// wait.
//
// Files call downwards only, in this order:
//
//	waiter       a goroutine waits until its items leave
//	flow         one direction of a session
//	shaper       the live classes of a policy; a reload
//	new          classes, trees and trials from policies
//	cast         what computes for a class with shadow, in a trial of its own
//	guest        a session in a trial
//	source       what sends, in a trial
//	copy         what stands in a trial for what really comes
//	trial        what would happen, event by event
//	pacer        wakes trees at their departure times
//	timer_linux  the pacer's clock
//	timer        the same on Go's own timers
//	set          another policy for a class and its buckets
//	enter        items come, leave, and give up
//	feedback     what a provider answers
//	keys         a bucket for each client
//	idle         what is remembered of buckets that nobody uses
//	class        the class: what its policy says, and all that belongs to it
//	slot         the sessions that may be open
//	shadow       what a class asks about its shadow
//	count        counters, for a class and those above it
//	forecast     estimates of when something will leave
//	charge       what a departure costs each class on its path
//	tree         the place of a class in its tree, and the lock of the tree
//	feed         who is next of those that compete for a class
//	ring         turns, by weight
//	gate         what one class allows
//	throttle     what a provider's signals take away
//	pace         how fast a class sends, computed from its policy
//	line         what waits
//	alarms       moments, the earliest first
//	item         what leaves as one, and what it costs
//
// A rate goes from the policy to its limiter through Shaper.Apply, Class.Set, paceOf,
// Class.put and gate.takeOver.
package shaper
