package stampede

import "time"

// EarlyRefresh is the decision of one pod when to load early.
type EarlyRefresh struct{ x earlyRefresh }

// NewEarlyRefresh draws anew, as a pod does.
func NewEarlyRefresh(beta float64) *EarlyRefresh { return &EarlyRefresh{newEarlyRefresh(beta)} }

// Due says whether to load e now.
func (e *EarlyRefresh) Due(entry *Entry) bool { return e.x.due(entry) }

// Gap is how long before the end of its TTL e is loaded.
func (e *EarlyRefresh) Gap(entry *Entry) time.Duration { return e.x.gap(entry) }

// CheckMsgpack is what data has to pass before it is decoded.
var CheckMsgpack = checkMsgpack

// Encode is how values become bytes.
func Encode(c Codec, v any) ([]byte, error) { return encode(c, v) }

// Decode is the reverse of Encode.
func Decode[T any](c Codec, data []byte) (T, error) { return decode[T](c, data) }
