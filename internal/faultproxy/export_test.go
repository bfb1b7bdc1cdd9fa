package faultproxy

// ReadFrame is readFrame.
var ReadFrame = readFrame
