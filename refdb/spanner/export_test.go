package spanner

import "time"

// BePatient extends the time limits of requests, beats among them, and of work in the background,
// so that only a hang reaches them. It is called before the first request.
func (d *Driver) BePatient() { d.patience = 10 * time.Minute }
