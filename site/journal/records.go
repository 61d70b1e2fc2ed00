package journal

import (
	"os"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// The files of data that seldom changes. Each is written as a whole.
const (
	marksFile       = "witnesses"
	policyFile      = "policy"
	testimoniesFile = "testimonies"
)

func load[T any](j *Journal, file string) (content T, err error) {
	_, err = durable.In(j.dir, file).Load(&content)
	return content, err
}

func (j *Journal) save(file string, content any) error {
	err := os.MkdirAll(j.dir, 0o700)
	if err == nil {
		err = durable.In(j.dir, file).Save(content)
	}
	return j.ended(err)
}

// Marks implements [driver.Journal].
func (j *Journal) Marks() ([]driver.WitnessMark, error) {
	return load[[]driver.WitnessMark](j, marksFile)
}

// SetMarks implements [driver.Journal].
func (j *Journal) SetMarks(marks []driver.WitnessMark) error { return j.save(marksFile, marks) }

// Policy implements [driver.Journal].
func (j *Journal) Policy() (driver.PolicyMark, error) { return load[driver.PolicyMark](j, policyFile) }

// SetPolicy implements [driver.Journal].
func (j *Journal) SetPolicy(p driver.PolicyMark) error { return j.save(policyFile, p) }

// Testimonies implements [driver.Journal].
func (j *Journal) Testimonies() ([]driver.Testimony, error) {
	return load[[]driver.Testimony](j, testimoniesFile)
}

// SetTestimonies implements [driver.Journal].
func (j *Journal) SetTestimonies(all []driver.Testimony) error {
	if err := j.sync(); err != nil {
		return err
	}
	return j.save(testimoniesFile, all)
}

func (j *Journal) sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return err
	}
	return j.ended(j.log.Sync())
}
