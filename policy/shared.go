package policy

import (
	"fmt"
	"math"
	"slices"
	"time"

	"shaper/unit"
)

// A fleetChecker checks sections [fleet.NAME] and the keys shared of classes.
type fleetChecker struct{ *checker }

// fleet checks the keys of a fleet against each other.
func (c fleetChecker) fleet(f *Fleet) {
	key := join("fleet", f.Name)
	if f.TLS != nil && f.TLS.Insecure && f.TLS.CA != "" {
		c.wrong(key+".tls.insecure", "nothing is verified, so ca has no effect", "ca, or insecure = true, and not both")
	}
	c.certAndKey(key+".tls", f.TLS)
	if f.Username != "" && f.PasswordFile == "" && c.sound(key+".password_file") {
		c.wrong(key+".username", "there is no password for it", "both username and password_file, or neither")
	}
	if f.Sentinel == "" && c.sound(key+".sentinel") {
		c.withoutSentinels(key+".sentinel_username", f.SentinelUsername)
		c.withoutSentinels(key+".sentinel_password_file", f.SentinelPasswordFile)
	} else if f.SentinelUsername != "" && f.SentinelPasswordFile == "" && c.sound(key+".sentinel_password_file") {
		c.wrong(key+".sentinel_username", "there is no password for it", "both sentinel_username and sentinel_password_file, or neither")
	}
}

// withoutSentinels complains of a key for sentinels, where there are none.
func (c fleetChecker) withoutSentinels(key, value string) {
	if value != "" {
		c.wrong(key, "there are no sentinels", "leave it out, or set sentinel, the name of the master that they watch")
	}
}

// certAndKey checks that a client has both a certificate and its key, or neither.
func (c *checker) certAndKey(key string, u *ClientTLS) {
	switch {
	case u == nil:
	case u.Cert == "" && u.Key != "" && c.sound(key+".cert"):
		c.wrong(key+".key", "there is no certificate for it", "both cert and key, or neither")
	case u.Cert != "" && u.Key == "" && c.sound(key+".key"):
		c.wrong(key+".cert", "there is no key for it", "both cert and key, or neither")
	}
}

// shared checks the key shared of a class.
func (c fleetChecker) shared(key string, class *Class) {
	at := key + ".shared"
	if class.Shared == "" && !c.given(at) || !c.sound(at) {
		return
	}
	i := slices.IndexFunc(c.p.Fleets, func(f Fleet) bool { return f.Name == class.Shared })
	if i < 0 && !c.sound("fleet") {
		return
	}
	if i < 0 {
		allowed := hintOf(c.checker, class.Shared, "fleets", c.p.Fleets, fleetName)
		if len(c.p.Fleets) == 0 {
			allowed = fmt.Sprintf("write a section [fleet.%s]", plainName(class.Shared))
		}
		c.wrong(at, fmt.Sprintf("there is no fleet %q", class.Shared), allowed)
		return
	}
	if class.Per.Has(ByConnection) && c.sound(key+".per") {
		c.wrong(at, "each connection has a bucket of its own, which no other shaper knows", `leave it out, or per = "source", for example`)
		return
	}
	if p := c.above(class); p != nil && p.Per != (Per{}) && p.Shared != class.Shared && c.sound(join("class", p.Name)+".shared", key+".per") {
		c.wrong(at, fmt.Sprintf("its buckets are beneath those of %q, which the fleet does not share", p.Name), fmt.Sprintf("leave it out, or shared = %q in %q too", class.Shared, p.Name))
		return
	}
	if rate := c.p.Fleets[i].Fallback.Rate; rate.Kind() != 0 && rate.Kind() != class.Rate.Kind() {
		c.wrong(at, fmt.Sprintf("the fallback %q of the fleet counts %v, and the rate %q counts %v", rate, rate.Kind(), class.Rate, class.Rate.Kind()),
			`fallback = "share", or a fleet of its own for the class`)
		return
	}
	for above := c.above(class); above != nil; above = c.above(above) {
		if above.Shared != "" && above.perishes() && class.perishes() {
			c.wrong(at, fmt.Sprintf("class %q above it is shared, too, and both let items leave at moments of their own: they would have few in common", above.Name),
				fmt.Sprintf("leave it out in one of the two, or give one a window, or a burst that lasts more than %v", BriefBurst))
			return
		}
	}
}

// BriefBurst is the longest that a brief burst lasts, at its rate. With a brief burst, a slot of a shared
// class may be over before the other limits of the class let an item leave.
const BriefBurst = 200 * time.Millisecond

// perishes reports whether the slots of one of the limits of a class would be over soon, if the class were
// shared. Those of a stream of bytes are not, since it makes up for a piece.
func (c *Class) perishes() bool {
	brief := func(l Limit) bool {
		return !l.Algorithm.HasWindow() && l.Rate.Below(l.Headroom).Time(max(l.AtOnce(), 1)-1) <= BriefBurst
	}
	return c.Rate.Kind() != unit.Bytes && (brief(c.Own()) || slices.ContainsFunc(c.Also, brief))
}

// warnFleets warns of fleets that nobody uses, and of shared classes that use them badly.
func (c warner) warnFleets() {
	used, inKernel := map[string]bool{}, kernelChecker(c).inKernel()
	for i := range c.p.Classes {
		class := &c.p.Classes[i]
		used[class.Shared] = true
		if class.Shared != "" {
			c.warnShared(join("class", class.Name), class)
			if inKernel[class.Name] {
				c.warn(join("class", class.Name)+".shared", "the class shapes a device, too, and the kernel knows nothing of the fleet: there the class has its whole budget",
					"a class of its own for the device")
			}
		}
	}
	for _, f := range c.p.Fleets {
		key := join("fleet", f.Name)
		if !used[f.Name] {
			c.warn(key, "it is never used", "name it in the key shared of a class")
		}
		if f.TLS != nil && f.TLS.Insecure {
			c.warn(key+".tls.insecure", "nobody verifies the store: anyone on the path can read the password", "ca = the store's own certificate, or that of its authority")
		}
	}
}

// warnShared warns of a shared class whose slots may come closer together than its limit says.
func (c warner) warnShared(key string, class *Class) {
	at := key + ".shared"
	if f, _ := c.p.Fleet(class.Shared); f.Fallback.Rate.Compare(class.Limit()) > 0 {
		c.warn(at, fmt.Sprintf("while the store is away, the fallback of %v is above the limit of %v", f.Fallback.Rate, class.Limit()), `fallback = "share"`)
	}
	if class.Algorithm != Leaky || class.Rate.Kind() == unit.Bytes || class.Limit().IsZero() {
		return
	}
	gap := class.Limit().Time(1)
	switch spare := class.Limit().Below(class.Headroom).Time(1) - gap; {
	case class.Headroom == 0:
		c.warn(at, "the class has no headroom, and a slot may be used late by 2 % of a gap: then the next one comes too soon for a provider that enforces gaps",
			`headroom = "2%", for example`)
	case gap >= time.Millisecond && spare < wakeUp:
		c.warn(join(join("class", class.Name), "headroom"), fmt.Sprintf("of a gap of %v it leaves %v for lateness; a wake-up is often later, and then its slot is lost", gap, spare),
			fmt.Sprintf("at least %.1f %%", math.Ceil(1000*float64(wakeUp)/float64(gap+wakeUp))/10))
	}
}

// wakeUp is how late a wake-up on a quiet machine may well be.
const wakeUp = 45 * time.Microsecond
