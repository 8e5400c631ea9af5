// Package broken has drivers with bugs, to check that the suite of package conformance detects the
// bugs with a given Harness. Each bug wraps a working driver.
//
// The author of a driver runs the broken drivers with their own Harness:
//
//	func TestNoticesBugs(t *testing.T) {
//		broken.Test(t, func(
//			t conformance.TB, wrap func(backend.Driver) backend.Driver,
//		) conformance.Harness {
//			return newHarness(t, wrap) // its Driver returns wrap(driver)
//		})
//	}
//
// The test fails for each case of the table that passes although its driver is broken. It skips a
// bug that needs a capability or an interface that the driver lacks.
package broken
