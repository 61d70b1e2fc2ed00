package migrations

import "time"

// BePatient has a migration wait for one of another process for so long that only a hang reaches the end. It is called
// before the first operation.
func (m *Migrator) BePatient() { m.lockWait = 10 * time.Minute }
