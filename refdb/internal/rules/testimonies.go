package rules

import (
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// ErrNoTestimonies says that the schema is of version 11, which has neither testimonies nor a policy.
var ErrNoTestimonies = fmt.Errorf("%w: version 11 has no policy: run `refdbctl migrate up`", driver.ErrSchema)

// WithoutTestimonies returns r without the fields for which version 11 of the schema has no columns.
func WithoutTestimonies(r driver.Report) driver.Report {
	r.Closes, r.Testimonies, r.Excused, r.Policy = nil, nil, nil, driver.PolicyMark{}
	return r
}
