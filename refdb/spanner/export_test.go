package spanner

import "time"

// BePatient lets a request take so long that only a hang reaches it. It is called before the first one.
func (d *Driver) BePatient() { d.timeout = 10 * time.Minute }
