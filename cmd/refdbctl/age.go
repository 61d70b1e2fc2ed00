package main

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// maxDays is about as many as a time.Duration holds: 292 years.
const maxDays = 100_000

// age is a flag's value: a positive duration, which may be in days.
type age time.Duration

func (a *age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *age) Type() string { return "age" }

func (a *age) Set(s string) error {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		n = max(min(n, maxDays), -maxDays)
		d = time.Duration(n) * 24 * time.Hour
	}
	switch {
	case err != nil:
		return errors.New("give an age such as 90s, 10m, 36h or 30d, not a point in time")
	case d <= 0:
		return errors.New("an age must be positive, such as 10m: it says how long ago, not when")
	}
	*a = age(d)
	return nil
}
