// Package fleet lets several processes share the budget of a class, through a Redis server, the store. Each
// process is a member of the fleet. The package needs no other part of shaper but units and limiters.
//
// If a counter on a server tells who may pass now, members are jointly bursty, or each item waits for the
// network. Here the store hands out slots, which are departure times one period apart. A member leases a
// block of slots, and asks for the next block before this one is used up. So all members together are evenly
// spaced. A member decides which item leaves at a slot when the slot comes.
//
// # What is promised
//
// With Slots, no two departures of members that have the store are closer than 1/Rate less Class.Late,
// less the errors of their clocks, which Status states. With a burst, at most
// Burst + Rate*(t + Late) units leave over any time t. Windows hold at most their limit, by the store's
// clock and to within that error. A member that wakes up later than Late delays its own next slots, and
// drops what then no longer fits into its block. If Late is 50 µs, as with 5 % headroom at 1,000/s, a mean
// lateness of 30 µs costs 1.3 % of the slots, and one of 10 µs none. The caller says by Left when an item has left. If that is
// later than Late allows, all slots that follow move by as much, where a gap is longer than half of Deadline and a round trip. The
// first gap may be too short by as much, if the next member does not hear before its slot.
//
//   - The store is away, or a call is late or fails: after the deadline of the call the member expects
//     nothing new. It uses what is in hand. Then nothing leaves until the store, if it is there for others,
//     counts the member as silent: 50 ms after the last call while something waits, 2 s if the member was
//     idle. Another 50 ms pass until everything has ended that the store may have granted to others. From then on
//     the member has its share: Rate divided by the members, as the store has told it. The sum of these
//     shares is never above the whole. The store holds the shares of silent members, and of those that it
//     has forgotten, back for ten minutes, and then the member stops. Members on their shares keep to the
//     sum, not to the gap. A window that began before is not used further: others may have used it up. A
//     Fallback names a rate instead, or stops at once.
//   - The store is another process (run_id), or has lost what it knew: no slot begins before all
//     those have ended that it may have granted, 100 ms and a gap. Members tell it for 1.5 s how much of
//     each window they have seen used, and then what has left at their shares. What no living member has seen is lost.
//   - The store's clock is set: members notice, because the new time does not fit the differences seen
//     before, and ask for the same fence. A clock set back lets slots stand still for no longer than that.
//     Shares of silent members are held back for as long as before, and pauses last as long. A clock set forward by less than 2 s does
//     not show: it shortens the hold by so much. If only members call then that have just come, it does not show either.
//     A fixed or sliding window goes on until the clock is there again.
//   - Answers take more than 0.8 of Class.Deadline, 40 ms: the member does not know the store's clock well enough, and
//     the store counts as away. With a longer Deadline, the times of 50 ms and 100 ms above are as much longer.
//   - Members have different deadlines: no slot begins later after its grant than the shortest of them says, so that each
//     member can fence a store that has lost its grants by its own. What members with longer deadlines had got before has to end
//     first: twice the longest deadline. Members that have just come do not know the others, and fence by 500 ms. This
//     promise does not hold if the store loses everything twice before all members are back.
//   - An answer is lost: the call goes again with its number, and gets the same grant.
//   - A replica takes over: a grant is used only if WAIT says that a replica has it, when there is one.
//   - A member ends without Close: its share is held back for ten minutes while it is silent. If it comes again under its
//     name, it has its share at once. What it has used of the share of a window must be known then: a Ledger has it
//     before anything leaves, and the store hears of it first. What a member that never comes again has used of its share
//     of a longer window is forgotten after the ten minutes.
//   - The machine is suspended, and the clock of the member with it: the kernel says so, and the member begins as one that has
//     just come. What it had in hand is lost.
//
// These promises do not cover:
//
//   - A virtual machine that is paused together with all its clocks. After the pause it uses what it had in hand, until
//     the next answer and no longer than a horizon; or its share, if the store is away then.
//   - A server that evicts keys. Its maxmemory-policy has to be noeviction.
//   - An item that costs more than a lease. Its slots reach beyond the fence if a fail-over loses them.
//   - An item that costs more than a window holds. It counts as one window.
//
// # The keys of a class
//
// All have the prefix and the hash tag {NAME}: the class itself, :members, :paused if keys pause, and for each key
// :bucket:KEY and, while members compete, :line:KEY. A bucket expires 10 s after it makes no difference any more, the
// class 20 minutes after its last member, and the pauses of keys 20 minutes after the last of them. An ACL needs: evalsha
// eval info time wait ping hget hset hmget hdel hkeys hlen hincrby zadd zrem zrange zrangebyscore zcard zcount zrank zscore
// zincrby zremrangebyrank pexpire.
//
// # How to use it
//
// A live class is a Member (Join), and the limiter of the class, or of a key of it, is its Budget. Budget
// implements limit.Limiter: Next is limit.Never while too few units are in hand. The caller tells by Want how
// much waits, and looks again when the function that it gave to Join is called. Package shaper does that:
//
//   - shaper.Limits returns what the members have to agree on, and package fleet/limits makes a Class of
//     it. Rate is the rate less headroom. Late is 15/16 of the headroom of a gap: the gap at that rate less
//     the gap at the rate itself. For bytes it is leaky.Slack. Token and GCRA are Slots with a burst.
//   - Its shared limiter calls Want with the units that wait and the costs of the next items, and with 0 and 0
//     when nothing waits.
//   - The function given to Join leads to Shaper.Told, which takes the lock of the tree and looks again.
//     Member's lock comes after that of a tree, and the function is called without it.
//   - A class that pauses, since the provider has said "too fast", calls Slow. The others hear of that with
//     their next answer. A pause of a key is one of up to 64 that they hear of one by one, or with the first
//     answer for that key.
//   - A bucket that nobody uses calls Budget.Forget.
//
// A simulation drives a Machine for each member, with a Model as the store, in virtual time, as the tests do.
//
// Files call downwards only, in this order:
//
//	leave                how a live member ends
//	budget               what a class asks of a live member
//	member               a live member: goroutines between a Machine and a Store
//	store                the connections to the store
//	conn                 a connection to one server; with store the only user of the library
//	script               reserve.lua and peers.lua, which run on the store
//	peer                 what the store knows of a member
//	change               another rate for a live member, and estimates
//	sleep                what a member does that was suspended
//	suspend_linux        how long the machine was suspended
//	machine, ask, lease, estimate, pause, late, heed, absence, debt  a member of a class: what it asks the store for, what
//	                     it holds, when the provider wants nothing, the deadlines of others, what
//	                     leaves while the store is away, and what a ledger keeps of that
//	spent                what has left of the share, and when
//	usage                how much of a window is used, as the store has said
//	hand                 what a lease has been granted
//	items                what the next items need
//	link                 whether the store answers, and what it knows of the member
//	alarm                when to look at a lease again
//	block                slots that follow one another
//	clock                the store's clock, by the local one
//	model, presence, slots, window, earmark  the store in memory: what a call does there, its members, its slots, its
//	                     windows, and what others leave to a member
//	key_pauses           which keys pause there
//	call                 calls and answers
//	period               the time between two slots, as exactly as the store computes it
//	class                what the members of a fleet agree on
package fleet
