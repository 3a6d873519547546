package calendar

import (
	"fmt"
	"sync"
	"time"
)

// Zone is a time zone by its IANA name, such as "Europe/Paris". The zero Zone is UTC. Two
// zones are == if they have the same name.
type Zone struct{ name string }

// locations holds the zones that were read, by name. There are some 600 names.
var locations sync.Map

// ParseZone returns the zone of a name. It reads the database of the system, or the one in
// the program.
func ParseZone(name string) (Zone, error) {
	switch name {
	case "UTC":
		return Zone{}, nil
	case "", "Local": // time.LoadLocation takes them
		return Zone{}, fmt.Errorf("%q is not the name of a time zone", name)
	}
	if _, known := locations.Load(name); !known {
		loc, err := time.LoadLocation(name)
		if err != nil {
			return Zone{}, fmt.Errorf("%q is not the name of a time zone", name)
		}
		locations.Store(name, loc)
	}
	return Zone{name}, nil
}

// Location returns the zone as package time has it.
func (z Zone) Location() *time.Location {
	if z.name == "" {
		return time.UTC
	}
	loc, _ := locations.Load(z.name)
	return loc.(*time.Location)
}

// String returns the name.
func (z Zone) String() string {
	if z.name == "" {
		return "UTC"
	}
	return z.name
}

// MarshalText is String.
func (z Zone) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// UnmarshalText is ParseZone.
func (z *Zone) UnmarshalText(text []byte) (err error) {
	*z, err = ParseZone(string(text))
	return err
}
