package catchup

import "time"

// Patient returns o with a patience with other processes' lock files of git that only a hang exhausts.
func Patient(o Options) Options {
	o.untilHeld = time.Hour
	return o
}
