package refdb

// RoleOf returns d if it has the role R, such as [Notifier], or else the first that has it of the drivers that it wraps: a
// driver says which one it wraps by a method Unwrap() Driver.
func RoleOf[R any](d Driver) (r R, ok bool) {
	for d != nil {
		if r, ok = d.(R); ok {
			return r, true
		}
		wrapper, wraps := d.(interface{ Unwrap() Driver })
		if !wraps {
			break
		}
		d = wrapper.Unwrap()
	}
	return r, false
}
