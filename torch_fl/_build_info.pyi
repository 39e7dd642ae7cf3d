# SPDX-License-Identifier: Apache-2.0
BUILT_FOR_TORCH: str
