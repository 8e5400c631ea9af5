// Package broken has drivers with bugs, to check that a Harness of package conformance, and the
// suite with it, notices them. Each bug wraps a driver that works.
//
// The author of a driver runs them over their own Harness:
//
//	func TestNoticesBugs(t *testing.T) {
//		broken.Test(t, func(t conformance.TB, wrap func(backend.Driver) backend.Driver) conformance.Harness {
//			return newHarness(t, wrap) // its Driver returns wrap(driver)
//		})
//	}
//
// The test fails for each case of the table that passes although its driver is broken. A bug that
// needs what the driver does not claim is left out.
package broken
