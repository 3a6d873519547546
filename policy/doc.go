// Package policy holds what an operator writes into shaper.toml: how fast each class may
// send, where clients connect and what that leads to (listeners), and what belongs to
// which class (rules).
//
// [Load] reads a file strictly and reports every mistake with its position. [Compile]
// turns the rules into a [Classifier]. [Diff] compares two policies. A [Policy] consists
// of plain Go values, which marshal to JSON under the names of the file's keys. Nobody
// changes a Policy after Load returns it, so any goroutine may read it.
//
// Each file calls only those below it. A file becomes a policy, or a list of errors:
//
//	control    the path of the control socket, even if the rest of the file is invalid
//	format     a file in the form that shaper fmt writes
//	scan       the lines of a file
//	jsonschema  the sections and keys as a JSON schema
//	load       takes the files of a policy through the steps below
//	read       reads the file, and the files that it includes
//	include    which files a policy includes, and their sections in one table
//	with       gives a class of a policy other values
//	section    the sections of the file fill a Policy
//	schema     the keys of each section, and how each is read and printed
//	tc         the section [tc.DEVICE]
//	host       the key host of a listener
//	tls        the keys tls and upstream_tls of a listener
//	unix       the key unix of a listener
//	fleet      the section [fleet.NAME]
//	upstream   the keys upstream, balance, health and bind of a listener
//	at         the keys at and quiet of a class
//	reactions  what a class does about the answers of its provider
//	message    values that concern messages: length prefixes, pauses, patterns
//	learn      the key learn of a class
//	retry      the key retry of a class
//	also       the key also of a class
//	cost       the keys cost, settle and throttled_by of a class
//	field      builds the fields of which the schema consists
//	describe   what a policy may contain
//	decode     decodes a table of the file by its fields
//	syntax     parses TOML, and continues after a mistake
//	node       the values of a TOML file, with their positions
//
// A policy is checked:
//
//	check      names that are used exist, and limits can hold
//	warn       what is legal and probably not meant
//	cover      rules that can never match
//	times      sections [[class.NAME.at]] and [[class.NAME.quiet]]
//	limits     the limits of a class can hold
//	use, price  a class can limit what a listener carries, and messages say what they cost
//	answers    what is said about messages and their answers
//	balance    how upstreams are chosen and checked
//	entries    where clients of an entry may go
//	transparent  what rules of nftables can lead to a listener
//	sockets    no address is bound twice, and no upstream leads back
//	path       the parents of classes, and their siblings
//	shared     the stores of fleets, and the classes whose budgets they have
//	kernel     the kernel can do what sections [tc.DEVICE] ask of it
//	filter     how many filters in the kernel a rule needs
//	checker    what every check needs: classes and listeners by name
//	places     where the file names addresses and other files
//
// A connection or a message gets its classes:
//
//	explain    why a rule decides, for people
//	classify   the rules, compiled
//	per        what has a bucket of its own in a class
//	fields     what a person says about a message
//	hash       the key of a bucket, as a connection or a message says it
//	match      the messages that a rule matches
//	index      many rules, found by port
//	scope      the listeners and messages that a rule applies to
//	classid    the numbers of classes in the kernel
//
// A policy is compared and printed:
//
//	diff       what differs between two policies
//	print      a policy as text, for people
//	compare    whether two values are the same, and what is printed of one
//	tree       the classes below a class
//	reads      what a class reads in messages and their answers
//	schedule   a class at one time of its schedule
//	quiet      the recipients of a class that have quiet hours
//	hours      times of the week
//	limit      one of several limits of a class
//	target     what allow and deny match
//	algorithm  windows and bursts of algorithms
//	defaults   the value of each key that a file leaves out
//	policy     the types: Policy, Class, Listener, Rule
//	protocol   what each protocol can do
//
// All of these use:
//
//	value      reads sizes, durations, integers, paths and names of fields
//	address    reads addresses, ports and prefixes, and compares addresses
//	name       paths, and the names of unix sockets
//	errors     mistakes and warnings, with their positions
//	foreign    what people write for a key or a word, and where it belongs
//	text       lists of values, and the name that was probably meant
//	key        the names of keys in errors
package policy
