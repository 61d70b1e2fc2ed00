package cli

import (
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/timespec"
)

// Age is the value of a flag: a positive duration, which may be given in days.
type Age time.Duration

func (a *Age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *Age) Type() string { return "age" }

func (a *Age) Set(s string) error {
	d, err := timespec.Age(s)
	if err == nil {
		*a = Age(d)
	}
	return err
}
