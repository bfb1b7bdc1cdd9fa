//go:build !unix

package measure

import "time"

// CPU returns 0: this system is not asked for processor time.
func CPU() time.Duration { return 0 }
