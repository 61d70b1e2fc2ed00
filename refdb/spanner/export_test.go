package spanner

import "time"

// BePatient extends the time limits of requests, including beats, and of background work, so that
// only a hang reaches them. It has to be called before the first request.
func (d *Driver) BePatient() { d.patience = 10 * time.Minute }
