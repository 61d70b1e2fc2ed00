package postgres

// ShareAll has every request about a single ref share a trip, be it with nobody.
func (d *Driver) ShareAll() {
	d.lane.under = laneWidth
}

// KeysOf returns the keys of a project and of a ref.
func KeysOf(project, ref string) (int64, int64) {
	return int64(keyOf(project, "")), int64(keyOf(project, ref))
}
