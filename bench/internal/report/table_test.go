package report

import "testing"

func TestNumbersHaveTheirThousandsApart(t *testing.T) {
	for want, got := range map[string]string{
		"0":            Number(0, 0),
		"999":          Number(999, 0),
		"1,000":        Number(1000, 0),
		"12,345,678":   Number(12345678, 0),
		"1,234.50":     Number(1234.5, 2),
		"0.41":         Number(0.41, 2),
		"100.0":        Number(100, 1),
		"1,000,000.00": Number(1e6, 2),
	} {
		if got != want {
			t.Errorf("%s is printed instead of %s", got, want)
		}
	}
}
